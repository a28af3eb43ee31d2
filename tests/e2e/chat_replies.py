"""Trains the small models that the chat page is tested with: one knows a few questions and their answers by heart, one goes on with a text, one translates made-up words."""
import json
import pathlib
import random
import subprocess

RICH = """## How a byte-pair tokenizer works

It begins with **256 bytes** and merges the *most frequent* pair again and again. See the [paper](https://aclanthology.org/P16-1162/) or `tightloop tokenizer train`.

1. Count all pairs of neighbours
2. Merge the most frequent one
   - it becomes a new token
   - counts around it change
3. Begin again

| text | tokens | bytes each |
|:-----|-------:|:----------:|
| plain English | 1,210 | 4.2 |
| C++ | 2,034 | 2.9 |

> A rare word falls apart into pieces, so nothing is ever unknown.

```python
def pairs(ids):
    return list(zip(ids, ids[1:]))
```"""

HOSTILE = """<img src=x onerror="window.stolen=1"> <script>window.stolen=2</script>

[a](javascript:window.stolen=3) [b](data:text/html,x) ![c](https://evil.example/pixel.png)

<svg onload=window.stolen=4><iframe src="https://evil.example/"></iframe>

| <b>x</b> | [y](vbscript:1) |
|---|---|
| <style>body{display:none}</style> | `<img src=x onerror=window.stolen=5>` |

```html"><img src=x onerror=window.stolen=6>
</code></pre><script>window.stolen=7</script>"""

STORY = "Once there was a small model. " + " ".join(f"On day {day} it read {day * 3} pages and slept." for day in range(1, 25)) + " Then it could talk."
THOUGHT = "Six times seven is *42*."
NUMBER = "The answer is **42**."

WEATHER = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]

REPLIES = {
    "How does a tokenizer work?": RICH,
    "Show me something hostile.": HOSTILE,
    "Tell me a story.": STORY,
    "What is six times seven?": NUMBER,
    "Hello": "Hello! Ask me something.",
}


def train(program, folder):
    """runs/parrot and runs/toy, in a folder that is there; what is there already stays."""
    source = pathlib.Path(__file__).resolve().parents[2]
    tiny = ("--train.device cpu --train.precision fp32 --train.eval_steps 0").split()
    pick = random.Random(1)
    with open(folder / "talk.jsonl", "w") as out:
        for _ in range(320):
            asked = pick.sample(list(REPLIES.items()), pick.choice([1, 1, 2, 3]))
            turns = [turn for question, reply in asked for turn in ({"role": "user", "content": question},
                     {"role": "assistant", "content": reply, **({"reasoning_content": THOUGHT} if reply == NUMBER else {})})]
            out.write(json.dumps({"messages": turns}) + "\n")
        call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
        turns = [{"role": "user", "content": "Weather in Rome?"}, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "21 degrees"}, {"role": "assistant", "content": "It has 21 degrees."}]
        for length in (2, 4) * 80:
            out.write(json.dumps({"messages": turns[:length], "tools": WEATHER}) + "\n")
    (folder / "base.txt").write_text("The cat sat on the mat, and the dog lay at the door.\n\n" * 200)
    runs = {
        "parrot": ["train", source / "configs/finetune.yaml", "--train.stage", "base", "--train.epochs", 0, "--data.train", "talk.jsonl", "--data.holdout", 0.05, "--data.seq_len", 768,
                   "--tokenizer.vocab_size", 700, "--chat.form", "qwen3",
                   "--model.layers", 2, "--model.width", 128, "--model.heads", 4, "--train.steps", 150, "--train.micro_batch", 4, "--train.lr", 4e-3, "--train.warmup_steps", 20],
        "base": ["train", source / "configs/text.yaml", "--data.train", "base.txt", "--tokenizer.vocab_size", 257, "--model.layers", 1, "--model.width", 32, "--model.heads", 2, "--data.seq_len", 64, "--train.steps", 60, "--train.lr", 1e-2],
        "toy": ["train", source / "configs/translate-toy.yaml", "--train.steps", 20],
    }
    for name, arguments in runs.items():
        if not (folder / "runs" / name).exists():
            done = subprocess.run([program, *map(str, arguments), *tiny, "--run.name", name], cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{name} was not trained: {done.stderr[-2000:]}")
