# Train a finished run for longer, and with another learning rate.
source "$JOURNEYS/lib.sh"
make text 200000 >text.txt
ok "tightloop train configs/text.yaml --data.train text.txt --run.name mine $SMALL"
steps=${SMALL:+60}
ok "tightloop train --resume runs/mine --train.steps ${steps:-2000}"
must_say "train.steps"
title "What may not change is refused by name, and nothing in the run changes"
cp runs/mine/config.yaml before.yaml
expect 2 "tightloop train --resume runs/mine --model.layers 9"
must_say "model.layers"
cmp before.yaml runs/mine/config.yaml || fail "config.yaml has changed"
title "A new run from its weights"
ok "tightloop train configs/finetune.yaml --train.init_from runs/mine --data.source text --data.train text.txt --run.name second $TUNED"
