# A Hugging Face folder in, fine-tuned with LoRA on own chats, and back to transformers.
source "$JOURNEYS/lib.sh"
[ -x "$PEERS" ] || skip "there is no Python with transformers at '$PEERS': run tools/setup --peers, or set PEERS."
make text 100000 >text.txt; make chats messages 200 >chats.jsonl

title "A small Qwen3 model with random weights, as transformers saves it"
ok "tightloop tokenizer train text.txt --vocab-size 400 --special '<|endoftext|>' '<|im_start|>' '<|im_end|>' --output tokenizer"
ok "$PEERS $JOURNEYS/hugging_face.py make tokenizer qwen3"
must_exist qwen3/config.json qwen3/model.safetensors qwen3/tokenizer.json
title "Fine-tune it with adapters, and with all weights"
ok "tightloop train configs/finetune.yaml --data.train chats.jsonl --train.init_from qwen3 --lora.rank 8 --run.name adapted $TUNED"
ok "tightloop train configs/finetune.yaml --data.train chats.jsonl --train.init_from qwen3 --run.name tuned $TUNED"
ok "printf 'What does the horse see?\n' | tightloop chat --run runs/adapted --temperature 0 --max-tokens 20"
title "Back to transformers"
for run in adapted tuned; do
  ok "tightloop export --run runs/$run --to $run-hf"
  must_exist $run-hf/config.json $run-hf/generation_config.json $run-hf/model.safetensors $run-hf/tokenizer.json $run-hf/tokenizer_config.json $run-hf/README.md
  ok "tightloop generate --model $run-hf --prompt \$'<|im_start|>user\nWhat does the horse see?<|im_end|>\n<|im_start|>assistant\n' --temperature 0 --max-tokens 16 --precision fp32 --json"
  cp $out ours.json
  ok "$PEERS $JOURNEYS/hugging_face.py compare $run-hf ours.json"
done
