# Own text files: train, look at the result, measure it.
source "$JOURNEYS/lib.sh"
mkdir books; make text 200000 >books/one.txt; make text 100000 >books/two.txt

title "What is in the files?"
ok "tightloop data check configs/text.yaml --data.train 'books/*.txt'"
title "Train, several files by a pattern"
ok "tightloop train configs/text.yaml --data.train 'books/*.txt' --run.name mine $SMALL"
must_say "saved in runs/mine"
must_exist runs/mine/config.yaml runs/mine/metrics.jsonl runs/mine/log.txt runs/mine/tokenizer runs/mine/checkpoints
title "Let it write, and measure it"
ok "tightloop generate --run runs/mine --prompt 'The old river' --max-tokens 40"
must_say "The old river"
ok "tightloop eval --run runs/mine --json"
python3 -c "import sys; sys.exit(not 0 < $(value loss) < 7)" || fail "the held-out loss is $(value loss)"
title "The same name again is refused; nothing is lost"
expect 2 "tightloop train configs/text.yaml --data.train 'books/*.txt' --run.name mine $SMALL"
must_say "exists already"
title "Several files by name"
ok "tightloop train configs/text.yaml --data.train books/one.txt,books/two.txt --run.name two-files $SMALL"
