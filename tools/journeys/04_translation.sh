# Own sentence pairs: train a translator, translate, score.
source "$JOURNEYS/lib.sh"
make pairs 2000 train.en train.de
head -100 train.en >test.en; head -100 train.de >test.de
vocabulary=${SMALL:+--tokenizer.vocab_size 100}
sized=${SMALL:+--model.layers 1 --model.width 64 --model.heads 2 $vocabulary --data.batch_tokens 512 --train.steps 60 --train.eval_steps 30 --train.warmup_steps 10 --train.lr 3e-3 --train.schedule cosine}

ok "tightloop data check configs/translate.yaml --data.train train.en --data.train_target train.de $vocabulary"
ok "tightloop train configs/translate.yaml --data.train train.en --data.train_target train.de --run.name mine $sized"
ok "tightloop translate --run runs/mine <test.en >test.translated"
[ "$(wc -l <test.translated)" = 100 ] || fail "not a line for each line"
ok "tightloop bleu --ref test.de --hyp test.translated"
must_say "BLEU"
title "Files of different lengths are refused by the line"
head -99 test.translated >short
expect 3 "tightloop bleu --ref test.de --hyp short"
must_say "line 100"
