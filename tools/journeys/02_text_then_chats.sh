# Own text, then own chats: a base model, fine-tuned on conversations.
source "$JOURNEYS/lib.sh"
mkdir books; make text 200000 >books/one.txt
make chats messages 400 >chats.jsonl

title "First the text; the vocabulary has the tokens of a chat template"
ok "tightloop train configs/text.yaml --data.train 'books/*.txt' --run.name base $SMALL"
title "Then the conversations"
ok "tightloop data show configs/finetune.yaml --data.train chats.jsonl --train.init_from runs/base --rows 1"
ok "tightloop train configs/finetune.yaml --data.train chats.jsonl --train.init_from runs/base --run.name talk $TUNED"
must_exist runs/talk/checkpoints runs/talk/tokenizer
title "Talk to it: from a pipe every line is a question"
ok "printf 'What does the horse see?\n' | tightloop chat --run runs/talk --temperature 0"
for shape in conversations question alpaca prompt; do
  title "Records of another shape: $shape"
  make chats $shape 50 >$shape.jsonl
  head -1 $shape.jsonl
  ok "tightloop data check configs/finetune.yaml --data.train $shape.jsonl --train.init_from runs/base"
  must_not_say "bad record"
done
