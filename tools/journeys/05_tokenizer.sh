# A tokenizer of one's own: train, encode, decode, use it in a run.
source "$JOURNEYS/lib.sh"
make text 300000 >text.txt
ok "tightloop tokenizer train text.txt --vocab-size 600 --output tokenizer"
must_exist tokenizer/tokenizer.json
ok "echo 'The old river' | tightloop tokenizer encode --tokenizer tokenizer --lines"
cp $out ids.txt
ok "tightloop tokenizer decode --tokenizer tokenizer --lines <ids.txt"
must_say "The old river"
ok "tightloop train configs/text.yaml --data.train text.txt --tokenizer.path tokenizer --run.name mine $SMALL"
cmp tokenizer/tokenizer.json runs/mine/tokenizer/tokenizer.json || fail "the run has another tokenizer"
title "SentencePiece"
ok "tightloop tokenizer train text.txt --type unigram --vocab-size 100 --output pieces"
must_exist pieces
ok "echo 'the old river' | tightloop tokenizer encode --tokenizer pieces --lines"
