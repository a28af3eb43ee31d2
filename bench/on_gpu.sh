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

while read -r tool filter; do
  started=$SECONDS
  LD_LIBRARY_PATH=$libraries timeout 120 compute-sanitizer --tool "$tool" --error-exitcode 9 "$carry/tests_torch" \
    --gtest_brief=1 --gtest_filter="$filter" >"$out/$tool.txt" 2>&1 </dev/null
  row "compute-sanitizer $tool" "exit $?, $(grep 'SUMMARY' "$out/$tool.txt" | tail -1 | sed 's/=* *//'), $((SECONDS - started)) s"
done <<'END'
memcheck *RmsNorm*/cuda:*Rope*/cuda:*Swiglu*/cuda:*CrossEntropy*/cuda:*FusedHead*/cuda:*Adamw*/cuda:*GradientNorm*/cuda:*LossBuffer*/cuda
racecheck *RmsNorm*/cuda:*Swiglu*/cuda:*GradientNorm*/cuda
END

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

# The stages as their recipes stand.
for recipe in nanochat-d4-base nanochat-d4-mid nanochat-d4-sft minimind-64m-pretrain minimind-64m-sft minimind-moe-pretrain minimind-moe-sft; do
  started=$SECONDS
  (cd "$work" && mkdir -p configs && cp "$OLDPWD/configs/$recipe.yaml" configs/ && tightloop train "configs/$recipe.yaml") >>"$out/stages.txt" 2>&1
  row "$recipe" "exit $?, losses $(grep -oE '"training/loss":[0-9.]+' "$work/runs/$recipe/metrics.jsonl" | cut -d: -f2 | sed -n '1p;$p' | paste -sd' '), $((SECONDS - started)) s"
done
gsm8k=$carry/data/chat/gsm8k_train.jsonl
if [ -f "$gsm8k" ]; then
  tightloop train configs/sft-gsm8k.yaml --data.train "$gsm8k" --tokenizer.path "$carry/data/tokenizers/minimind" --run.dir "$work" \
    --train.steps 2000 --train.micro_batch 32 --model.layers 8 --model.width 512 --model.heads 8 --model.ffn 1408 --train.lr 1e-3 >"$out/sft.txt" 2>&1
  row "sft-gsm8k, larger" "$(grep -oE 'held-out loss [0-9.]+' "$out/sft.txt" | paste -sd' '), $(tightloop eval --run "$work/sft-gsm8k" --json 2>>"$out/sft.txt" | head -c 300)"
  printf 'Tom has 3 apples and buys 4 more. How many apples does he have?\nAnd if he eats 2?\n' |
    tightloop chat --run "$work/sft-gsm8k" --temperature 0 >>"$out/sft.txt" 2>&1
  tail -12 "$out/sft.txt"
fi

text=$carry/data/text/tinyshakespeare.txt
if [ -f "$text" ]; then
  started=$SECONDS
  tightloop train configs/shakespeare-char.yaml --data.train "$text" --run.dir "$work" --run.name shakespeare >"$out/shakespeare.txt" 2>&1
  row "shakespeare-char" "best held-out loss $(grep -oE 'held-out loss [0-9.]+' "$out/shakespeare.txt" | awk '{print $3}' | sort -n | head -1), $((SECONDS - started)) s"
fi
printf '\n'; cat "$table"
