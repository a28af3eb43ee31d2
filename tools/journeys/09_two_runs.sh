# Two runs compared: the same data, another size; losses, text, translations by the same measure.
source "$JOURNEYS/lib.sh"
make text 200000 >text.txt; make text 20000 >test.txt
ok "tightloop train configs/text.yaml --data.train text.txt --run.name small $SMALL"
ok "tightloop train configs/text.yaml --data.train text.txt --run.name large $SMALL --model.layers 2"
for run in small large; do
  ok "tightloop eval --run runs/$run --input test.txt --json"
  must_exist runs/$run/metrics.jsonl
  printf '%s: %s bits per byte\n' $run "$(value bits_per_byte)"
done
rows=${SMALL:+--data.seq_len 64 --train.micro_batch 8}
ok "tightloop data order configs/text.yaml --data.train text.txt --tokenizer.path runs/small/tokenizer $rows"
ok "tightloop generate --run runs/small --prompt 'The old' --max-tokens 20 --seed 1"
ok "tightloop generate --run runs/large --prompt 'The old' --max-tokens 20 --seed 1"
