# A text of 100 MB: prepared once, trained from shards; and tokenized live, without holding it in memory.
source "$JOURNEYS/lib.sh"
make text 100000000 >large.txt
ls -l large.txt
ok "tightloop tokenizer train large.txt --vocab-size 1000 --output tokenizer"
ok "tightloop prepare configs/text.yaml --data.train large.txt --tokenizer.path tokenizer --output shards"
must_exist shards
ok "tightloop train configs/text.yaml --data.source shards --data.train shards --tokenizer.path tokenizer --run.name prepared $SMALL"
ok "tightloop train configs/text.yaml --data.train large.txt --data.tokenize live --tokenizer.path tokenizer --run.name live $SMALL"
must_exist runs/prepared/checkpoints runs/live/checkpoints
