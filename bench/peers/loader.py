#!/usr/bin/env python3
"""Chat rows and translation pairs by torch's DataLoader and by Tightloop, alternately, and the ratios.

usage: .deps/peers/bin/python bench/peers/loader.py DATA [--tightloop build/tightloop] [--rounds 3]

DATA holds chat/gsm8k_train.jsonl, tokenizers/minimind/tokenizer.json and translate/multi30k_train.{en,de}. Both sides
parse, render, tokenize, mask and pad every sample from the raw file within the time measured; Tightloop reads the file
REPEATS times in one run, so that it works for seconds, too. "live" tokenizes in the loader's threads. One JSON line a
measurement; each number is the median of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

LENGTH, ROWS, VOCABULARY, REPEATS = 512, 32, 8000, 20


class ChatRows(Dataset):
    """A line of JSON -> X, Y and a mask that is 1 on the assistant's words and its end token."""

    def __init__(self, data):
        self.lines = (data / "chat/gsm8k_train.jsonl").read_text(encoding="utf-8").splitlines()
        self.tokenizer = Tokenizer.from_file(str(data / "tokenizers/minimind/tokenizer.json"))
        self.begin = self.tokenizer.encode("<|im_start|>assistant\n").ids
        self.end = self.tokenizer.encode("<|im_end|>\n").ids

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        record = json.loads(self.lines[index])
        text = (f"<|im_start|>user\n{record['question']}<|im_end|>\n"
                f"<|im_start|>assistant\n{record['answer']}<|im_end|>\n")
        ids = self.tokenizer.encode(text).ids[:LENGTH]
        mask, at = [0] * LENGTH, 0
        while at < len(ids):
            if ids[at:at + len(self.begin)] != self.begin:
                at += 1
                continue
            first = at = at + len(self.begin)
            while at < len(ids) and ids[at:at + len(self.end)] != self.end:
                at += 1
            for position in range(first, min(at + len(self.end), LENGTH)):
                mask[position] = 1
        row = torch.tensor(ids + [0] * (LENGTH - len(ids)))
        return row[:-1], row[1:], torch.tensor(mask[1:])


class Pairs(Dataset):
    """A JSON array of two sentences -> two lists of pieces with start and end."""

    def __init__(self, file, source, target):
        self.lines = file.read_text(encoding="utf-8").splitlines()
        self.source = sentencepiece.SentencePieceProcessor(model_file=str(source))
        self.target = sentencepiece.SentencePieceProcessor(model_file=str(target))

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        source, target = json.loads(self.lines[index])
        return [1] + self.source.encode(source) + [2], [1] + self.target.encode(target) + [2]


def padded(rows):
    def side(number):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(row[number]) for row in rows], batch_first=True)

    source, target = side(0), side(1)
    inputs = target[:, :-1]
    # As the translation trainers people start from do it: dense masks of both sides. Tightloop's batches carry lengths.
    causal = torch.tril(torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool))
    return source, inputs, target[:, 1:], (source != 0).unsqueeze(-2), causal & (inputs != 0).unsqueeze(-2)


def peer(dataset, workers, **options):
    loader = DataLoader(dataset, batch_size=ROWS, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
                        prefetch_factor=4 if workers else None, **options)
    for _ in loader:  # workers have started
        break

    def one_pass():
        started = time.perf_counter()
        for _ in loader:
            pass
        return len(dataset) / (time.perf_counter() - started)

    return one_pass


def repeated(file):
    return ",".join([str(file)] * REPEATS)


def ours(options, threads, *settings):
    command = [options.tightloop, "bench", "loader", options.recipe, "--threads", str(threads), "--json", *settings]
    return lambda: json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def report(job, rounds, contenders):
    seen = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            got = run()
            live = name.endswith("live")
            seen.setdefault(name, []).append(got if isinstance(got, float) else got["steady_samples_s" if live else "samples_s"])
    middle = {name: statistics.median(values) for name, values in seen.items()}
    reference = middle["DataLoader"]
    for name, value in middle.items():
        print(json.dumps({"job": job, "who": name, "samples_s": round(value), "ratio": round(value / reference, 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--tightloop", default="build/tightloop")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = options.data
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options.recipe = str(folder / "empty.yaml")
        pathlib.Path(options.recipe).write_text("{}\n")
        chat = ["--data.source", "jsonl", "--data.format", "question", "--data.train", repeated(data / "chat/gsm8k_train.jsonl"), "--data.holdout", "0", "--data.rows", "pad", "--data.seq_len", str(LENGTH),
                "--tokenizer.path", str(data / "tokenizers/minimind"), "--train.micro_batch", str(ROWS)]
        report("chat rows of 512, GSM8K", options.rounds, {
            "DataLoader": peer(ChatRows(data), 2),
            "tightloop, 1 thread": ours(options, 1, *chat),
            "tightloop, 2 threads": ours(options, 2, *chat),
            "tightloop, 1 thread, live": ours(options, 1, *chat, "--data.tokenize", "live"),
            "tightloop, 2 threads, live": ours(options, 2, *chat, "--data.tokenize", "live"),
        })
        lines = [(data / f"translate/multi30k_train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
        pairs = folder / "pairs.jsonl"
        pairs.write_text("".join(json.dumps(pair) + "\n" for pair in zip(*lines)), encoding="utf-8")
        for side in ("en", "de"):
            sentencepiece.SentencePieceTrainer.train(input=str(data / f"translate/multi30k_train.{side}"),
                                                     model_prefix=str(folder / side), vocab_size=VOCABULARY, minloglevel=2)
        translation = ["--data.source", "pairs", "--data.train", repeated(pairs), "--data.holdout", "0",
                       "--tokenizer.path", str(folder / "en.model"), "--tokenizer.target_path", str(folder / "de.model")]
        report("translation pairs, Multi30k", options.rounds, {
            "DataLoader": peer(Pairs(pairs, folder / "en.model", folder / "de.model"), 0, collate_fn=padded),
            "tightloop, 1 thread": ours(options, 1, *translation),
            "tightloop, 2 threads": ours(options, 2, *translation),
        })


main()
