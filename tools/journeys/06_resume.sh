# Stopped by Ctrl-C, then killed: resume goes on where the newest checkpoint is, to the same bits.
source "$JOURNEYS/lib.sh"
make text 200000 >text.txt
# On a GPU the recipe as it stands is over in seconds: more steps, and checkpoints to come back to.
long="${SMALL:-} --train.steps 400 --train.save_steps 20 --train.deterministic true ${SMALL:+--train.device cpu --train.precision fp32}"

wait_for() { for _ in $(seq 600); do [ -e "$1" ] && return; sleep 0.1; done; fail "'$1' did not come"; }
begin() { tightloop train configs/text.yaml --data.train text.txt --run.name "$1" $long >"$1.log" 2>&1 & process=$!; }

title "Undisturbed, to compare with"
ok "tightloop train configs/text.yaml --data.train text.txt --run.name whole $long"
last=$(ls -d runs/whole/checkpoints/step-* | tail -1)
title "Ctrl-C: it saves, says how to go on, exit code 130"
begin stopped; wait_for runs/stopped/metrics.jsonl; kill -INT $process; wait $process; code=$?
tail -3 stopped.log
[ $code = 130 ] || fail "exit code $code after Ctrl-C"
grep -q "train --resume runs/stopped" stopped.log || fail "it does not say how to go on"
ok "tightloop train --resume runs/stopped"
title "kill -9: it goes on from the newest checkpoint"
begin killed; wait_for runs/killed/checkpoints/step-00000020/state.json; kill -9 $process; wait $process
ok "tightloop train --resume runs/killed"
for run in stopped killed; do
  cmp "$last/model.safetensors" "runs/$run/checkpoints/$(basename "$last")/model.safetensors" || fail "'$run' has other weights"
done
title "The same weights to the bit. Once more: there is nothing left to do"
ok "tightloop train --resume runs/stopped"
must_say "nothing to do"
