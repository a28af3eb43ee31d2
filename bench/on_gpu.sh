#!/usr/bin/env bash
# Everything that needs a GPU, in one call, with a table at the end. Runs from a checkout whose programs were built elsewhere:
#   bench/pack.sh carry                    where it was built: programs and the libraries that the GPU machine lacks -> carry/
#   bench/on_gpu.sh carry OUT [PART...]    where the GPU is: logs go to OUT/
# Parts: tests sanitizer steps beside generate ops several variants older kernels naive graphs memory data costs watching deterministic quickstart resume losses stages chat shakespeare translation pairs decoding ablation (default: all but beside, generate, ops, older and chat).
# The GPU machine must have the torch version of tools/versions in its Python. Texts, where a part wants some, lie in carry/data.
set -uo pipefail
cd "$(dirname "$0")/.."
carry=$(realpath "${1:-carry}") out=${2:-${OUT:-/tmp}}
shift $(($# > 2 ? 2 : $#))
torch=$(python3 -c 'import torch; print(torch.__path__[0])')
libraries=$torch/lib:$(find "$torch/../nvidia" -name lib -type d | paste -sd:):$carry/lib
tightloop() { LD_LIBRARY_PATH=$libraries timeout "${LIMIT:-300}" "$carry/tightloop" "$@"; }
table=$out/table.txt; : >"$table"
row() { printf '%-46s %s\n' "$1" "$2" | tee -a "$table"; }
work=$(mktemp -d); export TIGHTLOOP_DATA=$carry/data
MULTI30K=${MULTI30K:-} TATOEBA=${TATOEBA:-}
works="${WORKS:-gpt2-124m nanochat-d12 nanochat-d20 minimind-64m minimind-moe-198m}"
# A workload of bench/, or else a recipe.
workload() { [ -e "bench/workloads/$1.yaml" ] && echo "bench/workloads/$1.yaml" || echo "configs/$1.yaml"; }
step() { tightloop bench step "$@" --json 2>>"$out/errors.txt" | tail -1; }
# The numbers of a step that a table has room for.
brief() { python3 -c '
import json, sys
for line in sys.stdin:
    r = json.loads(line)
    keys = ["ms", "ms_wall", "ms_against", "ratio", "pairs", "tokens_s", "mfu", "mfu_data_sheet", "gpu_busy", "gpu_busy_traced", "peak_gib", "syncs", "data_wait", "parts_share_of_wall"]
    print(", ".join(f"{k} {r[k]:.4g}" for k in keys if isinstance(r.get(k), (int, float))), {k: round(v, 3) for k, v in r.get("parts", {}).items()} or "", r.get("graphs", ""))
' || echo failed; }

tests() {
  local started=$SECONDS
  LD_LIBRARY_PATH=$libraries timeout 400 "$carry/tests_torch" --gtest_brief=1 --gtest_filter="${FILTER:-*cuda*:*Cuda*:*Gpu*}" >"$out/tests.txt" 2>&1
  row "tests_torch" "exit $?, $(grep -cE '^\[  FAILED' "$out/tests.txt") failed, $(grep -E 'PASSED|SKIPPED' "$out/tests.txt" | tr '\n' ' ') $((SECONDS - started)) s"
  grep -E 'FAILED|Failure|rror' "$out/tests.txt" | head -40
}

sanitizer() {
  while read -r tool filter; do
    local started=$SECONDS
    # cuDNN's own kernels order their threads by means that racecheck does not know; many rows of long logits take all of its time.
    LD_LIBRARY_PATH=$libraries timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 9 "$carry/tests_torch" \
      --gtest_brief=1 --gtest_filter="$filter:-*Cudnn*:*ManyRowsAreTheRowsAlone*" >"$out/$tool.txt" 2>&1 </dev/null
    row "compute-sanitizer $tool" "exit $?, $(grep 'SUMMARY' "$out/$tool.txt" | tail -1 | sed 's/=* *//'), $((SECONDS - started)) s"
  done <<'END'
memcheck *RmsNorm*/cuda:*Rope*/cuda:*Swiglu*/cuda:*CrossEntropy*/cuda:*FusedHead*/cuda:*Adamw*/cuda:*MuonOn*/cuda:*GradientNorm*/cuda:*LossBuffer*/cuda:*Dropout*/cuda:*Stamp*/cuda:*AttentionOn*/cuda:*ResidualNorm*/cuda:*Activation*/cuda:*SplitHeads*/cuda:*EmbeddingOn*/cuda:*Fp8On*/cuda:*GatedAddOn*/cuda:*GeluLinearOn*/cuda:*ExpertRowsOn*/cuda:*SampleTokensOn*/cuda:*LikeliestTokensOn*/cuda:*FewRowsOn*/cuda:*NormedLinear*/cuda:*SwigluLinear*/cuda:*PagedAttentionOn*/cuda:*QuantizedLinearOn*/cuda
racecheck *RmsNorm*/cuda:*Swiglu*/cuda:*GradientNorm*/cuda:*CrossEntropy*/cuda:*AttentionOn*/cuda:*ResidualNorm*/cuda:*Activation*/cuda:*SplitHeads*/cuda:*EmbeddingOn*/cuda:*Fp8On*/cuda:*GatedAddOn*/cuda:*ExpertRowsOn*/cuda:*SampleTokensOn*/cuda:*LikeliestTokensOn*/cuda:*FewRowsOn*/cuda:*NormedLinear*/cuda:*SwigluLinear*/cuda:*PagedAttentionOn*/cuda:*QuantizedLinearOn*/cuda
initcheck *Fp8On*/cuda:*GatedAddOn*/cuda:*Activation*/cuda:*CrossEntropy*/cuda
END
}

steps() {
  row "AdamW alone, gpt2-124m" "$(tightloop bench update bench/workloads/gpt2-124m.yaml --json 2>>"$out/errors.txt")"
  for w in $works; do row "step $w" "$(step "$(workload "$w")" --synthetic --steps 20 | brief)"; done
}

# Generation, ours and transformers in turns; then the operators that it is made of.
generate() {
  local python=python3
  for shape in ${SHAPES:-qwen3-0.6b:1,64 minimind-64m:1,64}; do
    LD_LIBRARY_PATH=$libraries timeout 200 $python bench/peers/generate.py --device cuda --rounds "${ROUNDS:-2}" --precisions bf16 --shapes "${shape%:*}" --batches "${shape#*:}" \
      --tokenizer "$carry/data/tokenizers/minimind" --binary "$carry/tightloop" 2>>"$out/errors.txt" | while read -r line; do row generate "$line"; done
  done
}

ops() { tightloop bench ops >"$out/ops.txt" 2>>"$out/errors.txt"; row "bench ops" "$(grep -c x "$out/ops.txt") lines in ops.txt"; }

# Ours and the peers' own steps in turns: PEERS is a script that takes the name of a peer's workload and prints a line of JSON with its milliseconds.
beside() {
  local pair ours theirs
  for pair in ${PAIRS:-gpt2-124m:gpt2 nanochat-d12:nanochat12 nanochat-d20:nanochat20 minimind-64m:minimind minimind-moe-198m:minimind-moe translate-base:translate}; do
    ours=${pair%:*} theirs=${pair#*:}
    row "ours $ours" "$(step "$(workload "$ours")" --synthetic --steps 20 | brief)"
    case $theirs in translate) python3 bench/peers/translate.py train --shared ;; *) timeout 150 python3 "$PEERS" "$theirs" ;; esac 2>>"$out/errors.txt" | tee -a "$out/peers.txt" | while read -r line; do row "peer" "$line"; done
    case $ours in
      nanochat*) row "ours $ours, windows SSSL" "$(step "$(workload "$ours")" --synthetic --steps 20 --model.window_pattern SSSL | brief)"
        row "ours $ours, fp8" "$(step "$(workload "$ours")" --synthetic --steps 20 --train.precision fp8 | brief)" ;;
      gpt2*) row "ours $ours, fp8" "$(step "$(workload "$ours")" --synthetic --steps 20 --train.precision fp8 | brief)"
        row "ours $ours, dropout 0.1" "$(step "$(workload "$ours")" --synthetic --steps 20 --model.dropout 0.1 | brief)"
        row "ours $ours, deterministic" "$(step "$(workload "$ours")" --synthetic --steps 20 --train.deterministic true | brief)" ;;
    esac
    row "ours $ours again" "$(step "$(workload "$ours")" --synthetic --steps 20 | brief)"
  done
}

# Whether the last checkpoints of two runs hold the same bits.
same_files() {
  local file
  for file in model.safetensors optimizer.safetensors; do
    cmp "$work/$1/checkpoints/step-00000200/$file" "$work/$2/checkpoints/step-00000200/$file" >/dev/null 2>&1 && echo "$file same;" || echo "$file DIFFERENT;"
  done | paste -sd' '
}

# NCCL in a group of one, so that every collective is called and captured, beside the plain path: alternately, then 200 steps of each, whose
# weights must be the same bits. Then two processes that share the GPU, through the host, beside one on all rows.
several() {
  local alone="RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 TIGHTLOOP_GROUP_OF_ONE=1" w round shard
  for w in ${WORKS-gpt2-124m minimind-64m}; do
    for round in 1 2 3; do
      row "$w alone, $round" "$(step "$(workload "$w")" --synthetic --steps 20 | brief)"
      for shard in none optimizer; do row "$w group of one, shard $shard, $round" "$(export $alone; step "$(workload "$w")" --synthetic --steps 20 --dist.shard $shard | brief)"; done
    done
  done
  local recipe="configs/quickstart.yaml --train.steps 200 --train.deterministic true --train.eval_steps 0 --run.dir $work"
  tightloop train $recipe --train.precision bf16 --run.name alone >"$out/several.txt" 2>&1
  tightloop train $recipe --train.precision fp32 --run.name one >>"$out/several.txt" 2>&1
  for shard in none optimizer gradients; do
    (export $alone; tightloop train $recipe --train.precision bf16 --run.name group-$shard --dist.shard $shard --dist.reduce compute >>"$out/several.txt" 2>&1)
    row "200 steps, group of one, shard $shard" "$(same_files alone group-$shard)"
    grep -h "graphs\|captured" "$work/group-$shard/log.txt" | tail -1
  done
  for rank in 1 0; do
    (export RANK=$rank LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29512
     tightloop train $recipe --train.precision fp32 --run.name two --train.device cuda:0 --train.micro_batch 64 --dist.backend gloo >"$out/several.$rank.txt" 2>&1) &
  done
  wait
  row "200 steps of fp32, two processes on one GPU" "$(tightloop checkpoint diff "$work/one@200" "$work/two@200" 2>&1 | tee "$out/two.txt" | grep -E 'totals/loss|embedding|blocks.0' | head -8 | paste -sd';')"
}

# The same with what recipes leave out: fp8, nanochat's windows, dropout.
variants() {
  for w in ${WORKS:-gpt2-124m nanochat-d12 nanochat-d20}; do
    row "step $w, fp8" "$(step "$(workload "$w")" --synthetic --steps 20 --train.precision fp8 | brief)"
    case $w in
      nanochat*) for p in bf16 fp8; do row "step $w, windows SSSL, $p" "$(step "$(workload "$w")" --synthetic --steps 20 --model.window_pattern SSSL --train.precision $p | brief)"; done ;;
      gpt2*) row "step $w, dropout 0.1" "$(step "$(workload "$w")" --synthetic --steps 20 --model.dropout 0.1 | brief)" ;;
    esac
  done
}

# Another build (OLDER=FOLDER with tightloop and the plug-in of it) and this one, alternately: three rounds each, milliseconds a step.
older() {
  [ -e "$OLDER/libtightloop_cuda.so" ] || gunzip -k "$OLDER/libtightloop_cuda.so.gz"
  local w round build
  for w in ${WORKS:-gpt2-124m minimind-64m nanochat-d12}; do
    for round in 1 2 3; do
      for build in "$OLDER" "$carry"; do
        LD_LIBRARY_PATH=$libraries "$build/tightloop" bench step "$(workload "$w")" --synthetic --steps 20 --json 2>>"$out/errors.txt" |
          tail -1 | python3 -c 'import json, sys; print(sys.argv[1], json.load(sys.stdin)["ms"])' "$(basename "$build")" >>"$out/older.$w.txt"
      done
    done
    row "$w, both builds" "$(paste -sd' ' "$out/older.$w.txt")"
  done
}

# What the device does in a step, kernel by kernel.
kernels() {
  for w in ${WORKS:-translate-base gpt2-124m nanochat-d12 minimind-64m}; do
    tightloop bench step "$(workload "$w")" --synthetic --steps 10 --profile "$work/trace.json" >"$out/kernels.$w.txt" 2>>"$out/errors.txt"
    row "kernels $w" "$(tail -1 "$out/kernels.$w.txt")"
  done
}

naive() {
  for w in $works; do
    # In fp32 all rows of the largest do not fit at once: the naive loop then takes a quarter of them, four times.
    local parts=; [ "$w" = nanochat-d20 ] && parts='--train.micro_batch 8 --train.accumulate 4'
    row "naive $w $parts" "$(step "$(workload "$w")" --synthetic --naive --steps 5 $parts | brief)"
  done
}

graphs() {
  row "graphs off / on, minimind-64m B1 T256" "$(step bench/workloads/minimind-64m.yaml --synthetic --steps 20 --train.micro_batch 1 --data.seq_len 256 --against train.graph=off | brief)"
  row "graphs off / on, minimind-64m B32 T768" "$(step bench/workloads/minimind-64m.yaml --synthetic --steps 5 --against train.graph=off | brief)"
  row "interval 1 / 10, minimind-64m B1 T256" "$(step bench/workloads/minimind-64m.yaml --synthetic --steps 20 --train.micro_batch 1 --data.seq_len 256 --against train.loss_extract_interval=1 | brief)"
}

memory() {
  for checkpointing in none all; do
    row "memory gpt2-124m, checkpointing $checkpointing" "$(step bench/workloads/gpt2-124m.yaml --synthetic --steps 5 --train.fused_head on --model.gradient_checkpointing $checkpointing | brief)"
    row "  fit says" "$(tightloop fit bench/workloads/gpt2-124m.yaml --train.fused_head on --model.gradient_checkpointing $checkpointing --json 2>>"$out/errors.txt" | python3 -c 'import json,sys; r = json.load(sys.stdin)["predicted_bytes"]; print({k: round(v / 2**30, 3) for k, v in r.items()})')"
  done
  tightloop fit bench/workloads/gpt2-124m.yaml --memory 16 2>>"$out/errors.txt" | tee "$out/fit.txt" | tail -12
  local advice; advice=$(tightloop fit bench/workloads/gpt2-124m.yaml --memory 16 --json 2>>"$out/errors.txt" | python3 -c 'import json,sys; a = json.load(sys.stdin)["advice"]; print("--train.micro_batch", a["train.micro_batch"], "--train.accumulate", a["train.accumulate"], "--train.fused_head on --model.gradient_checkpointing", a["model.gradient_checkpointing"])')
  row "fit for 16 GiB: $advice" "$(step bench/workloads/gpt2-124m.yaml --synthetic --steps 5 --train.memory_limit 16 $advice | brief)"
}

data() {
  local text=$carry/data/text/tinyshakespeare.txt gsm8k=$carry/data/chat/gsm8k_train.jsonl
  tightloop prepare bench/workloads/gpt2-124m.yaml --data.source text --data.train "$text" --tokenizer.path "$carry/data/tokenizers/gpt2" --output "$work/shards" >>"$out/errors.txt" 2>&1
  row "gpt2-124m from shards" "$(step bench/workloads/gpt2-124m.yaml --steps 40 --data.source shards --data.train "$work/shards" --tokenizer.path "$carry/data/tokenizers/gpt2" --profile "$work/trace.json" | brief)"
  row "minimind-64m SFT from JSONL" "$(step configs/sft-gsm8k.yaml --steps 40 --data.train "$gsm8k" --data.seq_len 768 --train.micro_batch 32 --train.accumulate 1 --model.preset minimind-64m --model.layers 8 --model.width 768 --model.heads 8 --model.ffn 2432 --tokenizer.path "$carry/data/tokenizers/minimind" --profile "$work/trace2.json" | brief)"
}

costs() {
  local off='log.reduced_logging=true log.log_dataset_metrics=false log.memory_steps=0 train.logging_steps=1000000'
  for w in gpt2-124m minimind-64m; do
    row "accounting off / on, $w" "$(step "$(workload "$w")" --synthetic --steps 5 --against train.time_parts=false | brief)"
    row "logging off / on, $w" "$(step "$(workload "$w")" --synthetic --steps 10 --against "$off" | brief)"
  done
}

# Training with all that is watched by default and with as little as can be, alternately: milliseconds a step by the times of the lines, without the
# first 50 steps. Then how long saves held training up.
vocabulary_of() { [ "$1" != gpt2-124m ] || echo --tokenizer.path "$carry/data/tokenizers/gpt2"; }
watching() {
  local w name steps round how
  for w in ${WATCHED:-gpt2-124m:350 minimind-64m:1050}; do
    name=${w%:*} steps=${w#*:}
    for round in 1 2; do
      for how in none all; do
        tightloop train "$(workload "$name")" $(vocabulary_of $name) --train.steps $steps --train.eval_steps 0 --train.save_minutes 0 --run.dir "$work" --run.name watched --overwrite \
          $([ $how = none ] && echo --log.reduced_logging true --log.tensorboard false --log.detail_steps 0 --log.dataset_metrics_steps 0 --log.memory_steps 0) >>"$out/watching.txt" 2>&1 || echo "train failed: $name $how"
        python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
lines = [line for line in lines if line["global_step"] >= 50 and "training/loss" in line]
print(sys.argv[2], round(1000 * (lines[-1]["time"] - lines[0]["time"]) / (lines[-1]["global_step"] - lines[0]["global_step"]), 3))' "$work/watched/metrics.jsonl" $how >>"$out/watching.$name.txt"
      done
    done
    row "watching $name, ms a step" "$(paste -sd' ' "$out/watching.$name.txt")"
  done
  for name in ${SAVED:-gpt2-124m nanochat-d20}; do
    tightloop train "$(workload "$name")" $(vocabulary_of $name) --train.steps 180 --train.save_steps 60 --train.eval_steps 0 --run.dir "$work" --run.name saved --overwrite >>"$out/watching.txt" 2>&1 || echo "train failed: $name"
    row "saves of $name" "$(python3 -c '
import json, sys
for event in map(json.loads, open(sys.argv[1])):
    if event["event"].startswith("save"): print(event["global_step"], event["event"], *("{} {:.3g}".format(k, event[k]) for k in ("held_up", "seconds", "bytes") if k in event), end="; ")' "$work/saved/events.jsonl")"
  done
}

deterministic() {
  for w in gpt2-124m minimind-64m; do
    row "deterministic / not, $w" "$(step "$(workload "$w")" --synthetic --steps 5 | brief) against $(step "$(workload "$w")" --synthetic --steps 5 --train.deterministic true | brief)"
  done
}

quickstart() {
  local started=$SECONDS
  tightloop train configs/quickstart.yaml --run.dir "$work" 2>&1 | tee "$out/quickstart.txt" | tail -30
  row "quickstart on the GPU" "$(grep -E '^  all' "$out/quickstart.txt" | sed 's/  */ /g'), $((SECONDS - started)) s in all"
  row "generate" "$(tightloop generate --run "$work/quickstart" --prompt 'reverse stone =' --temperature 0 | head -1)"
}

# A run of 200 steps against one that stops after 100, in the middle of an epoch, and goes on in a new process: every file of the last checkpoint.
resume() {
  local precision pass
  for precision in bf16 fp16; do
    local recipe="configs/text.yaml --data.source text --tokenizer.path $carry/data/tokenizers/gpt2 --model.preset gpt2-124m --model.layers 4 --model.width 256 --model.heads 4
      --model.dropout 0.1 --train.accumulate 3 --train.steps 200 --train.save_steps 0 --train.eval_steps 0 --train.deterministic true --train.precision $precision --run.dir $work"
    for pass in whole half; do
      tightloop train $recipe --run.name "$pass-$precision" --train.stop_at $([ $pass = half ] && echo 100 || echo 0) \
        --data.mixture "name=prose source=text train=$carry/data/text/tinyshakespeare.txt weight=2, name=sums weight=1 source=jsonl format=text text_field=answer train=$carry/data/chat/gsm8k_train.jsonl" >>"$out/resume.txt" 2>&1 || echo "train failed: $pass $precision"
    done
    tightloop train --resume "$work/half-$precision" --train.stop_at 0 >>"$out/resume.txt" 2>&1 || echo "resume failed: $precision"
    row "resume $precision" "$(cd "$work" && for file in model.safetensors optimizer.safetensors; do
      cmp -s "whole-$precision/checkpoints/step-00000200/$file" "half-$precision/checkpoints/step-00000200/$file" && echo "$file same $(sha256sum <"half-$precision/checkpoints/step-00000200/$file" | cut -c1-12);" || echo "$file DIFFERENT;"; done | paste -sd' ')"
  done
}

# 1,000 steps of real text by each precision and by plain operators, several seeds: the mean loss of the last 100 steps.
losses() {
  local text=$carry/data/text/tinyshakespeare.txt seed how name
  for name in minimind-64m nanochat-d4; do
    for seed in ${SEEDS:-1 2 3}; do
      for how in bf16 fp8 head plain; do
        [ $name$how != nanochat-d4plain ] || continue
        local settings="--train.precision bf16"
        case $how in
          fp8) settings="--train.precision fp8 --train.fp8_head false" ;;
          head) settings="--train.precision fp8 --train.fp8_head true" ;;
          plain) settings+=" --ops.plain true" ;;
        esac
        case $name in
          minimind-64m) settings+=" --model.preset minimind-64m --model.vocab_size 50304 --train.micro_batch 2 --train.lr 2e-4" ;;
          nanochat-d4) settings+=" --model.preset nanochat-d4 --model.vocab_size 50304 --train.optimizer muon --train.micro_batch 4" ;;
        esac
        tightloop train configs/text.yaml --data.source text --data.train "$text" --tokenizer.path "$carry/data/tokenizers/gpt2" --data.seq_len 512 --train.steps 1000 --train.warmup_steps 50 \
          --train.accumulate 1 --train.eval_steps 0 --train.save_minutes 0 --train.save_steps 0 --train.logging_steps 10 --train.seed $seed $settings --run.dir "$work" --run.name losses --overwrite >>"$out/losses.txt" 2>&1 ||
          { echo "train failed: $name $how"; return; }
        python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
last = [line["training/loss"] for line in lines if "training/loss" in line and line["global_step"] > 900]
print(sum(last) / len(last))' "$work/losses/metrics.jsonl" >>"$work/losses.$name.$how"
      done
    done
    for how in fp8 head plain; do
      [ ! -e "$work/losses.$name.$how" ] || row "losses of $name, bf16 and $how by seed" "$(python3 -c '
import sys
a, b = ([float(x) for x in open(f)] for f in sys.argv[1:])
print(" ".join(f"{x:.4f} {y:.4f};" for x, y in zip(a, b)), f"means {sum(a) / len(a):.4f} {sum(b) / len(b):.4f} {100 * (sum(b) / sum(a) - 1):+.2f} %")' "$work/losses.$name.bf16" "$work/losses.$name.$how")"
    done
  done
}

stages() {
  local root=$PWD
  for recipe in nanochat-base nanochat-sft; do
    for checkpointing in none all; do
      local started=$SECONDS name=$recipe-$checkpointing
      (cd "$work" && tightloop data sample "$root/configs/$recipe.yaml" --to . &&
        tightloop train "$root/configs/$recipe.yaml" --run.name "$name" $([ $recipe = nanochat-base ] && echo --model.depth 4 --tokenizer.vocab_size 1024 || echo --train.init_from runs/nanochat-base-$checkpointing) \
          --data.seq_len 512 --train.micro_batch 4 --train.accumulate 1 --train.epochs 0 --train.steps 20 --train.logging_steps 1 --train.deterministic true --model.gradient_checkpointing $checkpointing) >>"$out/stages.txt" 2>&1
      row "$name" "exit $?, losses $(grep -oE '"training/loss":[0-9.]+' "$work/runs/$name/metrics.jsonl" | cut -d: -f2 | sha1sum | cut -c1-8) $(grep -oE '"training/loss":[0-9.]+' "$work/runs/$name/metrics.jsonl" | cut -d: -f2 | sed -n '1p;$p' | paste -sd' '), $((SECONDS - started)) s"
    done
  done
  row "checkpointing all / none, nanochat-d4" "$(step configs/nanochat-base.yaml --synthetic --model.depth 4 --model.vocab_size 1024 --data.seq_len 512 --train.micro_batch 4 --train.accumulate 1 --steps 10 --against model.gradient_checkpointing=all | brief)"
}

# nanochat's two stages by the recipes, on JSON lines in carry/stage.tgz (prose, GSM8K, samples; Arrow, which reads Parquet, is not there): bits per byte,
# losses by source, answers with and without the calculator, samples.
chat() {
  local root=$PWD started=$SECONDS calculator
  mkdir "$work/stage" && tar -xzf "$carry/stage.tgz" -C "$work/stage"
  (
    cd "$work/stage" || exit
    cp "$root"/configs/suites/*.jsonl . && cp gsm8k_test.jsonl gsm8k.jsonl && cp "$root/configs/suites/chat.yaml" .
    tightloop train "$root/configs/nanochat-base.yaml" --model.depth 8 --tokenizer.vocab_size 8192 --data.source jsonl --data.train 'data/prose/shard_0*.jsonl' --data.val data/prose/shard_val.jsonl \
      --train.step_tokens 131072 --train.micro_batch 32 --train.steps 160 --train.eval_steps 40 --train.eval_batches 0 --run.name base || exit
    tightloop train "$root/configs/nanochat-sft.yaml" --train.init_from runs/base --train.step_tokens 65536 --train.epochs ${SFT_EPOCHS:-1} --train.eval_steps 30 --train.eval_batches 0 \
      --eval.suite chat.yaml --run.name sft --data.mixture \
      'name=smoltalk source=jsonl format=chat train=data/smol-smoltalk/data/train-*.jsonl val=data/smol-smoltalk/data/test-*.jsonl' \
      'name=mmlu source=jsonl format=choice train=data/mmlu/all/auxiliary_train-*.jsonl val=data/mmlu/all/test-*.jsonl epochs=3' \
      'name=gsm8k source=jsonl format=gsm8k train=data/gsm8k/main/train-*.jsonl val=data/gsm8k/main/test-*.jsonl epochs=4' 'name=spelling source=spelling' || exit
    for calculator in '' --no-calculator; do
      tightloop eval --run runs/sft --suite chat.yaml --batch 128 --json $calculator >"$out/suite$calculator.json"
    done
    for name in base sft; do for file in metrics.jsonl samples.jsonl; do cp "runs/$name/$file" "$out/$name.$file"; done; done
  ) >"$out/chat.txt" 2>&1
  grep -hE 'held-out|accuracy|bits per byte|Effective' "$out/chat.txt" | tail -40
  for calculator in '' --no-calculator; do row "suite $calculator" "$(tr -d '\n' <"$out/suite$calculator.json" | cut -c1-600)"; done
  row chat "$((SECONDS - started)) s"
}

shakespeare() {
  local started=$SECONDS
  tightloop train configs/shakespeare-char.yaml --data.train "$carry/data/text/tinyshakespeare.txt" --run.dir "$work" --run.name shakespeare >"$out/shakespeare.txt" 2>&1
  row "shakespeare-char" "best held-out loss $(grep -oE 'held-out loss [0-9.]+' "$out/shakespeare.txt" | awk '{print $3}' | sort -n | head -1), $((SECONDS - started)) s"
}

translation() { multi30k; tatoeba; }

multi30k() {
  local data=$carry/data/translate started=$SECONDS
  tightloop train configs/translate-multi30k.yaml --run.dir "$work" --data.train "$data/multi30k_train.en" --data.train_target "$data/multi30k_train.de" \
    --data.val "$data/multi30k_val.en" --data.val_target "$data/multi30k_val.de" $MULTI30K >"$out/multi30k.txt" 2>&1
  row "translate-multi30k" "exit $?, $((SECONDS - started)) s; $(grep -oE 'held-out loss [0-9.]+.*' "$out/multi30k.txt" | tail -1); $(grep -oE '[0-9.]+ % padding' "$out/multi30k.txt")"
  local beam
  for beam in 5 1; do
    started=$(date +%s.%N)
    tightloop translate --run "$work/translate-multi30k" --beam $beam <"$data/multi30k_test_2016_flickr.en" >"$out/test2016.beam$beam.de" 2>>"$out/errors.txt"
    row "test2016 beam $beam" "$(tightloop bleu --ref "$data/multi30k_test_2016_flickr.de" --hyp "$out/test2016.beam$beam.de" --json | tr -d '\n' | cut -c1-200), $(python3 -c "import time; print(round(time.time() - $started, 2))") s in all"
  done
  tightloop average --run "$work/translate-multi30k" --last 5 --output "$work/averaged" >>"$out/errors.txt" 2>&1 &&
    tightloop translate --run "$work/averaged" <"$data/multi30k_test_2016_flickr.en" >"$out/test2016.averaged.de" 2>>"$out/errors.txt" &&
    row "the last 5 checkpoints averaged" "$(tightloop bleu --ref "$data/multi30k_test_2016_flickr.de" --hyp "$out/test2016.averaged.de" --json | tr -d '\n' | cut -c1-120)"
}

tatoeba() {
  local data=$carry/data/translate started=$SECONDS
  tightloop train configs/translate-tatoeba-zh.yaml --run.dir "$work" --data.train "$data/tatoeba_en_zh.tsv" $TATOEBA >"$out/tatoeba.txt" 2>&1
  row "translate-tatoeba-zh" "exit $?, $((SECONDS - started)) s; $(grep -oE 'held-out loss [0-9.]+.*' "$out/tatoeba.txt" | tail -1)"
  printf "I like tea.\nWhere is the station?\nShe doesn't want to speak to me.\nThe weather is good today.\nMy father is older than your mother.\n" |
    tightloop translate --run "$work/translate-tatoeba-zh" | tee "$out/tatoeba.zh"
  # The pairs that were held out, in their order, and what a beam makes of them.
  tightloop eval --run "$work/translate-tatoeba-zh" --limit 1000 2>>"$out/errors.txt" | tee "$out/tatoeba_eval.txt"
}

# Multi30k's captions as a JSON array of pairs.
json_pairs() {
  python3 -c 'import json,sys; d=sys.argv[1]; a=open(d+"/multi30k_train.en").read().splitlines(); b=open(d+"/multi30k_train.de").read().splitlines(); json.dump(list(map(list, zip(a, b))), open(sys.argv[2], "w"))' "$carry/data/translate" "$work/pairs.json"
}

pairs() {
  json_pairs
  row "translate-base B32 S40" "$(step configs/translate-base.yaml --synthetic --steps 100 | brief)"
  row "graphs off / on, translate-base" "$(step configs/translate-base.yaml --synthetic --steps 50 --against train.graph=off | brief)"
  row "interval 1 / 10, translate-base" "$(step configs/translate-base.yaml --synthetic --steps 50 --against train.loss_extract_interval=1 | brief)"
  row "translate-base from JSON pairs, 16 threads" "$(step configs/translate-base.yaml --data.train "$work/pairs.json" --data.num_workers 16 --model.vocab_size 0 --tokenizer.vocab_size 8000 --steps 300 | brief)"
  python3 bench/peers/translate.py train --shared ${MODES:+--modes $MODES} 2>>"$out/errors.txt" | tee "$out/peers.txt" | while read -r line; do row "peer" "$line"; done
}

# After `multi30k`: its model on the test set. The peers decode the same sentences with random weights of that shape, each batch of theirs to the
# longest of the translations that we found for its sentences.
decoding() {
  local run=$work/translate-multi30k test=$carry/data/translate/multi30k_test_2016_flickr.en size
  if [ -d "$run" ]; then
    ids() { tightloop tokenizer encode --tokenizer "$run/tokenizer" --lines 2>>"$out/errors.txt" | tr -d "[]" | tr "," " "; }
    ids <"$test" >"$work/test.ids"
    ids <"$out/test2016.beam5.de" | awk '{print NF + 1}' >"$work/test.lengths"
    row "decode test2016, ours" "$(tightloop bench translate --run "$run" --source "$test" --beam 5 --json 2>>"$out/errors.txt" | tail -1)"
    for size in 64 512; do
      python3 bench/peers/translate.py decode --source "$work/test.ids" --lengths "$work/test.lengths" --sentences 0 --sentences-a-batch $size --shared \
        --vocab 8000 --layers 4 --width 256 --heads 4 --ffn 1024 2>>"$out/errors.txt" | tee -a "$out/peers.txt" | while read -r line; do row "peer, test2016" "$line"; done
    done
  fi
  row "decode, ours" "$(tightloop bench translate configs/translate-base.yaml --sentences 256 --source-length 16 --length 30 --beam 5 --json 2>>"$out/errors.txt" | tail -1)"
  python3 bench/peers/translate.py decode --random 256 --source-length 16 --length 30 --sentences 256 --shared 2>>"$out/errors.txt" | tee -a "$out/peers.txt" | while read -r line; do row "peer" "$line"; done
}

ablation() {
  json_pairs
  tightloop bench ablation configs/translate-base.yaml --data.train "$work/pairs.json" --data.num_workers 4 --data.bucket 40 --model.vocab_size 0 --tokenizer.vocab_size 8000 --steps 20 --rounds 3 2>>"$out/errors.txt" | tee "$out/ablation.txt"
}

[ -e "$carry/libtightloop_cuda.so" ] || gunzip -k "$carry/libtightloop_cuda.so.gz"
tightloop doctor >"$out/doctor.txt"
for part in "${@:-tests sanitizer steps several variants kernels naive graphs memory data costs watching deterministic quickstart resume losses stages shakespeare translation pairs decoding ablation}"; do
  for one in $part; do
    started_part=$SECONDS
    "$one"
    echo "== $one took $((SECONDS - started_part)) s"
  done
done
printf '\n'; cat "$table"; tail -5 "$out/errors.txt" 2>/dev/null
