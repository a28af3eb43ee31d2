# A wrong path, typing errors, a wrong encoding, an empty file: what the program says, and with which exit code.
source "$JOURNEYS/lib.sh"
make text 100000 >text.txt
expect 3 "tightloop train configs/text.yaml --data.train tekst.txt --run.name a"
must_say "tekst.txt"
expect 2 "tightloop train configs/tekst.yaml --data.train text.txt"
expect 2 "tightloop train configs/text.yaml --data.train text.txt --train.step 10"
must_say "train.steps"
expect 2 "tightloop train configs/text.yaml --data.train text.txt --train.steps ten"
must_say "train.steps"
expect 2 "tightloop trian configs/text.yaml"
expect 2 "tightloop generate --run runs/none --prompt hello"
must_say "runs/none"
: >empty.txt
expect 3 "tightloop train configs/text.yaml --data.train empty.txt --run.name b"
python3 - <<'PYTHON'
text = open("text.txt").read()
open("utf16.txt", "w", encoding="utf-16").write(text)
open("latin1.txt", "w", encoding="latin-1").write(text.replace("e", "\u00e9"))
PYTHON
expect 3 "tightloop train configs/text.yaml --data.train utf16.txt --run.name c"
must_say "UTF-16"
expect 3 "tightloop train configs/text.yaml --data.train latin1.txt --run.name d"
must_say "UTF-8"
printf '{"messages": [{"role": "user", "content": "Hi"}\n' >broken.jsonl
expect 3 "tightloop data check configs/text.yaml --data.source jsonl --data.train broken.jsonl"
must_say "broken.jsonl"
[ ! -e runs/a ] || [ -z "$(find runs/a -name state.json)" ] || fail "a run came of a wrong path"
