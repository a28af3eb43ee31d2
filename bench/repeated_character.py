"""Time to encode a run of one repeated character, per doubling of its length: a linear merge takes twice as long.

usage: bench/repeated_character.py TOKENIZER... [--to 16] [--program build/tightloop]
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("tokenizers", nargs="+")
parser.add_argument("--to", type=int, default=16, help="megabytes of the longest run")
parser.add_argument("--program", default="build/tightloop")
options = parser.parse_args()
CHARACTERS = {"a": "a", "space": " ", "newline": "\n", "0": "0", "é": "é", "好": "好", "emoji": "🙂"}


def best_seconds(tokenizer, text):
    with tempfile.NamedTemporaryFile() as file:
        pathlib.Path(file.name).write_bytes(text)
        command = [options.program, "bench", "tokenizer", "--whole", "--json", "--megabytes", "1e-6"]
        command += ["--tokenizer", tokenizer, "--input", file.name]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["seconds"]


worst = 0
for tokenizer in options.tokenizers:
    for name, character in CHARACTERS.items():
        text = character.encode()
        sizes = [options.to << 20 >> k for k in range(6, -1, -1)]
        # The best of three passes over all lengths, each the best of five: other work on the machine comes and goes.
        passes = [[best_seconds(tokenizer, text * (size // len(text))) for size in sizes] for _ in range(3)]
        times = [min(times) for times in zip(*passes)]
        ratios = [b / a for a, b in zip(times, times[1:])]
        worst = max(worst, *ratios)
        print(f"{pathlib.Path(tokenizer).name} {name}: {times[-1] * 1e3:.0f} ms for {options.to} MB; a doubling from "
              f"{sizes[0] >> 10} KB on: " + " ".join(f"{r:.2f}" for r in ratios), flush=True)
print(f"worst ratio {worst:.2f}")
