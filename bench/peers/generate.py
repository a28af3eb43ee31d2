#!/usr/bin/env python3
"""Generation with a cache on the CPU: transformers and Tightloop alternately, the same weights, greedy.

    .deps/peers/bin/python bench/peers/generate.py [--threads 2] [--rounds 3] [--family qwen3]

Prints tokens a second of both (the median of the rounds) and the ratio, for fp32 and bf16. Batch 1, a prompt of 64
tokens, 128 new ones; loading and a warm-up are not counted on either side."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPT, NEW = 64, 128


def make_model(family, folder, tokenizer):
    """A random model of MiniMind's sizes, saved as a Hugging Face folder."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=6400, hidden_size=768, intermediate_size=2432, num_hidden_layers=8, num_attention_heads=8,
                 num_key_value_heads=4, head_dim=96, rope_theta=1e6, max_position_embeddings=1024,
                 tie_word_embeddings=True, eos_token_id=2, bos_token_id=1)
    kinds = {"qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
             "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM)}
    config, model = kinds[family]
    model = model(config(**sizes)).eval()
    model.save_pretrained(folder)
    for file in Path(tokenizer).iterdir():
        (Path(folder) / file.name).write_bytes(file.read_bytes())
    return model


def peer_seconds(model, ids):
    import torch

    with torch.inference_mode():
        start = time.perf_counter()
        out = model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0)
        seconds = time.perf_counter() - start
    assert out.shape[1] == PROMPT + NEW
    return seconds


def our_seconds(binary, folder, precision, threads):
    out = subprocess.run([binary, "bench", "generate", "--model", folder, "--device", "cpu", "--precision", precision,
                          "--prompt-tokens", str(PROMPT), "--new-tokens", str(NEW), "--json"],
                         check=True, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(out.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--family", default="qwen3", choices=["qwen3", "llama"])
    parser.add_argument("--tokenizer", default=ROOT.parent / "shared/data/tokenizers/minimind")
    parser.add_argument("--binary", default=ROOT / "build/tightloop")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)

    import torch
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(options.family, folder, options.tokenizer)
        count = sum(p.numel() for p in model.parameters())
        ids = (torch.arange(PROMPT) * 37 % 6000 + 100).unsqueeze(0)
        for precision in ("fp32", "bf16"):
            model = model.to(torch.float32 if precision == "fp32" else torch.bfloat16)
            peer_seconds(model, ids)  # warm-up
            theirs, ours = [], []
            for _ in range(options.rounds):
                theirs.append(NEW / peer_seconds(model, ids))
                ours.append(NEW / our_seconds(str(options.binary), folder, precision, options.threads))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"{options.family} {count / 1e6:.1f}M {precision}, {options.threads} threads: "
                  f"Tightloop {a:.1f} tokens/s, transformers {b:.1f} tokens/s, ratio {a / b:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
