#!/usr/bin/env python3
"""A training step of a small GPT-2 on the CPU: PyTorch eager, torch.compile and Tightloop alternately.

    .deps/peers/bin/python bench/peers/cpu_step.py [--threads 2] [--rounds 9] [--steps 5] [--dtypes fp32] [--cpu_time]

4 layers of width 256, 4 heads, vocabulary 4096, 8 rows of 256 random ids, AdamW with clipping at 1. bf16 is autocast
there and train.precision bf16 here. A round is some steps of each, one side after the other, so that what else the
machine does meets all of them. Prints the median milliseconds a step of each and, over the rounds, the median and the
middle half of how often ours fits in theirs; compiling and a warm-up are not counted on any side. With --cpu_time it is
the processes' CPU time, which other work on the machine disturbs less: take one thread, since idle ones spin. Ours is
then what a longer run takes more than a shorter one."""

import argparse
import json
import os
import statistics
import subprocess
import sys
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


def time_steps(step, steps, clock=time.perf_counter):
    started = clock()
    for _ in range(steps):
        step()
    return 1000 * (clock() - started) / steps


def run_ours(options, dtype, steps):
    """Milliseconds a step, and CPU seconds of the whole process."""
    command = [ROOT / "build/tightloop", "bench", "step", ROOT / "configs/quickstart.yaml", "--synthetic", "--json",
               "--steps", steps, "--train.device", "cpu", "--train.precision", dtype, "--train.threads",
               options.threads, "--model.family", "gpt2", "--model.layers", LAYERS, "--model.width", WIDTH,
               "--model.heads", HEADS, "--model.ffn", 4 * WIDTH, "--model.vocab_size", VOCABULARY, "--data.seq_len",
               TOKENS, "--train.micro_batch", ROWS]
    before = os.times()
    said = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(said.splitlines()[-1])["ms_wall"], used


def ours(options, dtype):
    if not options.cpu_time:
        return run_ours(options, dtype, options.steps)[0]
    longer, shorter = (run_ours(options, dtype, steps)[1] for steps in (1 + 2 * options.steps, 1))
    return 1000 * (longer - shorter) / (2 * options.steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--cpu_time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    for dtype in options.dtypes.split(","):
        sides = {"eager": make_step(torch, dtype, False), "compile": make_step(torch, dtype, True)}
        for step in sides.values():
            time_steps(step, 2)
        times = {name: [] for name in [*sides, "tightloop"]}
        for _ in range(options.rounds):
            for name, step in sides.items():
                times[name].append(time_steps(step, options.steps, clock))
            times["tightloop"].append(ours(options, dtype))
            print(dtype, {name: round(values[-1], 1) for name, values in times.items()}, file=sys.stderr, flush=True)
        medians = {name: statistics.median(values) for name, values in times.items()}
        result = {"dtype": dtype, **{f"{name}_ms": round(value, 1) for name, value in medians.items()}}
        for name in sides:
            ratios = [theirs / own for theirs, own in zip(times[name], times["tightloop"])]
            low, middle, high = statistics.quantiles(ratios, n=4)
            result[f"{name}_over_ours"] = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
