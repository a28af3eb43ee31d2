#!/usr/bin/env python3
"""A training step of a small GPT-2 on the CPU: PyTorch eager, torch.compile and Tightloop alternately.

    .deps/peers/bin/python bench/peers/cpu_step.py [--threads 2] [--rounds 5] [--steps 10] [--dtypes fp32,bf16]

4 layers of width 256, 4 heads, vocabulary 4096, 8 rows of 256 random ids, AdamW with clipping at 1. bf16 is autocast
there and train.precision bf16 here. Prints the median milliseconds a step of each and how often ours fits in theirs;
compiling and a warm-up are not counted on any side."""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS, WIDTH, HEADS, VOCABULARY, ROWS, TOKENS = 4, 256, 4, 4096, 8, 256


def make_step(torch, dtype, compiled):
    """One optimizer step of a GPT-2, as a function."""
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            heads = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight
            logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    ids = torch.randint(0, VOCABULARY, (ROWS, TOKENS + 1))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def time_steps(step, steps):
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return 1000 * (time.perf_counter() - started) / steps


def ours(options, dtype):
    command = [ROOT / "build/tightloop", "bench", "step", ROOT / "configs/quickstart.yaml", "--synthetic", "--json",
               "--steps", options.steps, "--train.device", "cpu", "--train.precision", dtype, "--train.threads",
               options.threads, "--model.family", "gpt2", "--model.layers", LAYERS, "--model.width", WIDTH,
               "--model.heads", HEADS, "--model.ffn", 4 * WIDTH, "--model.vocab_size", VOCABULARY, "--data.seq_len",
               TOKENS, "--train.micro_batch", ROWS]
    said = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    return json.loads(said.splitlines()[-1])["ms_wall"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dtypes", default="fp32,bf16")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    for dtype in options.dtypes.split(","):
        sides = {"eager": make_step(torch, dtype, False), "compile": make_step(torch, dtype, True)}
        for step in sides.values():
            time_steps(step, 5)
        times = {name: [] for name in [*sides, "tightloop"]}
        for _ in range(options.rounds):
            for name, step in sides.items():
                times[name].append(time_steps(step, options.steps))
            times["tightloop"].append(ours(options, dtype))
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(json.dumps({"dtype": dtype, **{f"{name}_ms": round(value, 1) for name, value in medians.items()},
                          **{f"{name}_over_ours": round(medians[name] / medians["tightloop"], 2) for name in sides}}),
              flush=True)


if __name__ == "__main__":
    main()
