#!/usr/bin/env bash
# Everything that needs a GPU, in one call: tests, the sanitizer, the quickstart and benches, with a table at the end.
# Runs from a checkout whose programs were built elsewhere:
#   bench/pack.sh carry          where it was built: programs and the libraries that the GPU machine lacks -> carry/
#   bench/on_gpu.sh carry OUT    where the GPU is: logs go to OUT/
# The GPU machine must have the torch version of tools/versions in its Python.
set -uo pipefail
cd "$(dirname "$0")/.."
carry=$(realpath "${1:-carry}") out=${2:-${OUT:-/tmp}}
torch=$(python3 -c 'import torch; print(torch.__path__[0])')
libraries=$torch/lib:$(find "$torch/../nvidia" -name lib -type d | paste -sd:):$carry/lib
tightloop() { LD_LIBRARY_PATH=$libraries "$carry/tightloop" "$@"; }
table=$out/table.txt; : >"$table"
row() { printf '%-34s %s\n' "$1" "$2" | tee -a "$table"; }
work=$(mktemp -d); export TIGHTLOOP_DATA=$carry/data

tightloop doctor | tee "$out/doctor.txt"

started=$SECONDS
LD_LIBRARY_PATH=$libraries "$carry/tests_torch" --gtest_brief=1 --gtest_filter='*cuda*:*Cuda*' >"$out/tests.txt" 2>&1
row "tests_torch" "exit $?, $(grep -cE '^\[  FAILED' "$out/tests.txt") failed, $(grep -E 'PASSED|SKIPPED' "$out/tests.txt" | tr '\n' ' ') $((SECONDS - started)) s"
grep -E 'FAILED|Failure' "$out/tests.txt" | head -20

for tool in memcheck racecheck; do
  started=$SECONDS
  LD_LIBRARY_PATH=$libraries timeout 150 compute-sanitizer --tool $tool --error-exitcode 9 "$carry/tests_torch" \
    --gtest_brief=1 --gtest_filter='*RmsNorm*/cuda:*Rope*/cuda:*Swiglu*/cuda:*CrossEntropy*/cuda:*FusedHead*/cuda:*Adamw*/cuda:*GradientNorm*/cuda:*LossBuffer*/cuda' >"$out/$tool.txt" 2>&1
  row "compute-sanitizer $tool" "exit $?, $(grep 'SUMMARY' "$out/$tool.txt" | tail -1 | sed 's/=* *//'), $((SECONDS - started)) s"
done

started=$SECONDS
tightloop train configs/quickstart.yaml --run.dir "$work" 2>&1 | tee "$out/quickstart.txt" | tail -30
row "quickstart on the GPU" "$(grep -E '^  all' "$out/quickstart.txt" | sed 's/  */ /g'), $((SECONDS - started)) s in all"
tightloop train configs/quickstart.yaml --run.dir "$work" --run.name plain --ops.plain true >"$out/quickstart_plain.txt" 2>&1
row "the same with plain operators" "$(grep -E '^  all' "$out/quickstart_plain.txt" | sed 's/  */ /g')"
tightloop train configs/quickstart.yaml --run.dir "$work" --run.name cpu --train.device cpu >"$out/quickstart_cpu.txt" 2>&1
row "the same on this machine's CPU" "$(grep -E '^  all' "$out/quickstart_cpu.txt" | sed 's/  */ /g'), $(grep -oE 'cpu, [a-z0-9]+' "$out/quickstart_cpu.txt"), $(grep -oE 'in [0-9ms]+;' "$out/quickstart_cpu.txt")"
row "generate" "$(tightloop generate --run "$work/quickstart" --prompt 'reverse stone =' --temperature 0 | head -1)"
for settings in "" "--train.precision fp32" "--ops.plain true"; do
  row "bench step quickstart $settings" "$(tightloop bench step configs/quickstart.yaml --steps 100 --json $settings)"
done
# The works of docs/benchmarks.md, on generated text: model, rows, length.
stream="--model.ffn 0 --data.rows stream --data.loss_after= --tasks.questions 400000"
while read -r preset rows length settings; do
  row "bench step $preset B$rows T$length $settings" "$(tightloop bench step configs/quickstart.yaml --steps 20 --json $stream \
    --model.preset "$preset" --data.seq_len "$length" --train.micro_batch "$rows" $settings 2>>"$out/bench_errors.txt")"
done <<'END'
gpt2-124m 64 1024
gpt2-124m 64 1024 --train.fused_head off
gpt2-124m 16 1024 --ops.plain true
minimind-64m 32 768
minimind-moe-198m 32 768
nanochat-d12 32 2048
END

text=$carry/data/text/tinyshakespeare.txt
if [ -f "$text" ]; then
  started=$SECONDS
  tightloop train configs/shakespeare-char.yaml --data.train "$text" --run.dir "$work" --run.name shakespeare >"$out/shakespeare.txt" 2>&1
  row "shakespeare-char" "best held-out loss $(grep -oE 'held-out loss [0-9.]+' "$out/shakespeare.txt" | awk '{print $3}' | sort -n | head -1), $((SECONDS - started)) s"
fi
printf '\n'; cat "$table"
