#!/usr/bin/env python3
"""Encodes the same text with tiktoken, Hugging Face tokenizers and Tightloop, alternately, and prints the ratios; then
trains a vocabulary of 8192 with Hugging Face tokenizers and with Tightloop.

usage: .deps/python/bin/python bench/peers/tokenizer_speed.py GPT2_FOLDER TEXT... [--tightloop build/tightloop] [--rounds 5]

GPT2_FOLDER holds vocab.json and merges.txt. Documents are of 4,096 characters. One JSON line a measurement; each number
is the best of the rounds.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def say(**line):
    print(json.dumps(line), flush=True)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(options, folder, text_path):
    text = pathlib.Path(text_path).read_bytes().decode("utf-8")
    documents = [text[i : i + 4096] for i in range(0, len(text), 4096)]
    documents *= max(1, int(8e6 / len(text.encode())))
    size = sum(len(d.encode()) for d in documents) / 1e6
    vocab, merges = str(folder / "vocab.json"), str(folder / "merges.txt")
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=merges, encoder_json_file=vocab)
    open_ai = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    hugging_face = Tokenizer(models.BPE.from_file(vocab, merges))
    hugging_face.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def ours(threads):
        command = [options.tightloop, "bench", "tokenizer", "--tokenizer", str(folder), "--input", str(text_path)]
        output = subprocess.run(command + ["--threads", str(threads), "--json"], check=True, capture_output=True)
        return json.loads(output.stdout.decode().strip().splitlines()[-1])["mb_s"]

    def hugging_face_batch(threads):
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        hugging_face.encode_batch(documents)

    for threads in (1, 2):
        best = {"tightloop": 0.0, "tiktoken": 0.0, "tokenizers": 0.0}
        for _ in range(options.rounds):
            best["tightloop"] = max(best["tightloop"], ours(threads))
            open_ai_call = lambda: open_ai.encode_ordinary_batch(documents, num_threads=threads)
            if threads == 1:
                open_ai_call = lambda: [open_ai.encode_ordinary(d) for d in documents]
            best["tiktoken"] = max(best["tiktoken"], size / seconds(open_ai_call))
            best["tokenizers"] = max(best["tokenizers"], size / seconds(lambda: hugging_face_batch(threads)))
        rounded = {f"{name}_mb_s": round(value, 1) for name, value in best.items()}
        ratios = {f"times_{name}": round(best["tightloop"] / best[name], 2) for name in ("tiktoken", "tokenizers")}
        say(work="encode", text=str(text_path), threads=threads, **rounded, **ratios)


def compare_training(options, text_path):
    text = pathlib.Path(text_path).read_bytes().decode("utf-8")
    repeated = text * max(1, int(8e6 / len(text.encode())))
    documents = [repeated[i : i + 4096] for i in range(0, len(repeated), 4096)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_bytes(repeated.encode())

        def theirs():
            tokenizer = Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(vocab_size=8191, show_progress=False, initial_alphabet=alphabet)
            tokenizer.train_from_iterator(documents, trainer)
            tokenizer.save(str(folder / "theirs.json"))

        command = [options.tightloop, "tokenizer", "train", str(folder / "text.txt"), "--vocab-size", "8192"]
        command += ["--output", str(folder / "ours")]
        best = [float("inf")] * 2
        for _ in range(max(1, options.rounds // 2)):
            ours = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
            best = [min(best[0], ours), min(best[1], seconds(theirs))]
        count = lambda path: len(Tokenizer.from_file(str(path)).encode(text).ids)
        tokens = count(folder / "ours" / "tokenizer.json"), count(folder / "theirs.json")
    say(
        work="train 8192",
        text=str(text_path),
        tightloop_s=round(best[0], 2),
        tokenizers_s=round(best[1], 2),
        times_tokenizers=round(best[1] / best[0], 2),
        tightloop_tokens=tokens[0],
        tokenizers_tokens=tokens[1],
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--tightloop", default="build/tightloop")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for text in options.texts:
        compare(options, options.folder, text)
    compare_training(options, options.texts[0])


if __name__ == "__main__":
    main()
