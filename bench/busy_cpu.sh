#!/usr/bin/env bash
# Training on two cores, alone and beside one process that is always busy, in turn: tokens/s (medians), and the ratio.
# usage: bench/busy_cpu.sh [ROUNDS [STEPS [PROGRAM...]]]    (default: 5 300 build/tightloop; several programs are compared)
# The environment is passed on, so OMP_WAIT_POLICY=active bench/busy_cpu.sh measures that. Wants a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} steps=${2:-300}
shift $(($# > 2 ? 2 : $#))
programs=("${@:-build/tightloop}")
work=$(mktemp -d)
busy=
trap '[ -z "$busy" ] || kill "$busy" 2>/dev/null; rm -rf "$work"' EXIT

# Tokens/s of one run: the median over the lines of its log but the first, which warms up.
speed() {
  taskset -c 0,1 "$1" train configs/quickstart.yaml --train.device cpu --train.precision fp32 --train.steps "$steps" \
    --log.detail_steps 10 --run.dir "$work" --run.name run --overwrite >"$work/log.txt" 2>&1 || { cat "$work/log.txt" >&2; exit 1; }
  python3 - "$work/run/metrics.jsonl" <<'END'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
speeds = [line["perf/tokens_per_second"] for line in lines if "perf/tokens_per_second" in line]
print(round(statistics.median(speeds[1:] or speeds)))
END
}

for ((round = 1; round <= rounds; ++round)); do
  for program in "${programs[@]}"; do
    echo "$program alone $(speed "$program")" >>"$work/table"
    taskset -c 0,1 python3 -c 'while 1: pass' & busy=$!
    echo "$program busy $(speed "$program")" >>"$work/table"
    kill "$busy"; wait "$busy" 2>/dev/null || true; busy=
  done
done
python3 - "$work/table" <<'END'
import statistics, sys
found = {}
for line in open(sys.argv[1]):
    program, how, speed = line.rsplit(" ", 2)
    found.setdefault(program, {}).setdefault(how, []).append(float(speed))
print(f"{'program':<32} {'alone':>12} {'beside one':>12} {'ratio':>7}   tokens/s, medians of {len(next(iter(found.values()))['alone'])} runs")
for program, speeds in found.items():
    alone, busy = (statistics.median(speeds[how]) for how in ("alone", "busy"))
    print(f"{program:<32} {alone:>12.0f} {busy:>12.0f} {busy / alone:>7.2f}")
END
