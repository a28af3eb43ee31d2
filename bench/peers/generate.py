#!/usr/bin/env python3
"""Generation with a cache: transformers and Tightloop alternately, the same weights, greedy.

    .deps/peers/bin/python bench/peers/generate.py [--threads 2] [--rounds 3] [--shapes minimind-64m] [--batches 1]
    python3 bench/peers/generate.py --device cuda --shapes qwen3-0.6b,minimind-64m --batches 1,64 --precisions bf16

Prints tokens a second of both (the median of the rounds) and the ratio. Prompts of 64 tokens, each another one, 128 new
tokens; loading and a warm-up are not counted on either side. Weights are random."""

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


SHAPES = {
    "minimind-64m": dict(vocab_size=6400, hidden_size=768, intermediate_size=2432, num_hidden_layers=8, num_attention_heads=8,
                         num_key_value_heads=4, head_dim=96, rope_theta=1e6, max_position_embeddings=1024,
                         tie_word_embeddings=True, eos_token_id=2, bos_token_id=1),
    "qwen3-0.6b": dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=128, rope_theta=1e6,
                       max_position_embeddings=40960, tie_word_embeddings=True, eos_token_id=2, bos_token_id=1)}


def make_model(shape, family, folder, tokenizer, device):
    """A random model, saved as a Hugging Face folder."""
    import torch
    import transformers

    torch.manual_seed(0)
    kinds = {"qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
             "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM)}
    config, model = kinds[family]
    with torch.device(device):
        model = model(config(**SHAPES[shape])).eval()
    model.save_pretrained(folder)
    for file in Path(tokenizer).iterdir():
        (Path(folder) / file.name).write_bytes(file.read_bytes())
    return model


def peer_seconds(model, ids):
    import torch

    with torch.inference_mode():
        start = time.perf_counter()
        out = model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, use_cache=True, pad_token_id=0)
        out = out.cpu()
        seconds = time.perf_counter() - start
    assert out.shape[1] == PROMPT + NEW
    return seconds


def our_seconds(options, folder, precision, batch):
    out = subprocess.run([str(options.binary), "bench", "generate", "--model", folder, "--device",
                          "cuda:0" if options.device == "cuda" else "cpu", "--precision", precision, "--batch", str(batch),
                          "--prompt-tokens", str(PROMPT), "--new-tokens", str(NEW), "--json", *options.ours],
                         check=True, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
    return json.loads(out.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--family", default="qwen3", choices=["qwen3", "llama"])
    parser.add_argument("--shapes", default="minimind-64m")
    parser.add_argument("--batches", default="1")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--tokenizer", default=ROOT.parent / "shared/data/tokenizers/minimind")
    parser.add_argument("--binary", default=ROOT / "build/tightloop")
    parser.add_argument("ours", nargs="*", help="more options for bench generate, after --")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)

    import torch
    torch.set_num_threads(options.threads)
    for shape in options.shapes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            model = make_model(shape, options.family, folder, options.tokenizer, options.device)
            count = sum(p.numel() for p in model.parameters())
            for precision in options.precisions.split(","):
                model = model.to(torch.float32 if precision == "fp32" else torch.bfloat16)
                for batch in map(int, options.batches.split(",")):
                    ids = (torch.arange(PROMPT) * 37 + torch.arange(batch).unsqueeze(1) * 101) % 6000 + 100
                    ids = ids.to(options.device)
                    peer_seconds(model, ids)  # warm-up
                    theirs, ours = [], []
                    for _ in range(options.rounds):
                        theirs.append(batch * NEW / peer_seconds(model, ids))
                        ours.append(batch * NEW / our_seconds(options, folder, precision, batch))
                    a, b = statistics.median(ours), statistics.median(theirs)
                    print(f"{options.family} {shape}, {count / 1e6:.1f}M, {precision}, batch {batch}, {options.device}: "
                          f"Tightloop {a:.1f} tokens/s, transformers {b:.1f} tokens/s, ratio {a / b:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
