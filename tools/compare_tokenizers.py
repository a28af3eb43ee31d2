#!/usr/bin/env python3
"""Compares our ids with those of tiktoken and Hugging Face tokenizers, on generated strings of every script, emoji and
control characters, and on the files of a data folder.

It writes the peers' ids beside the strings and runs the test TokenizerCases of tests_plain over them.

usage: .deps/python/bin/python tools/compare_tokenizers.py [--strings 100000] [--tests build/tests_plain] [--data DIR]
           [--tokenizer tokenizer.json]...    files of ours to read with Hugging Face tokenizers as well
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tiktoken
import tokenizers
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "golden"))
from tokenizer_strings import HF_PATTERNS, TIKTOKEN_PATTERNS, generate  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--strings", type=int, default=100_000)
parser.add_argument("--tests", default="build/tests_plain")
parser.add_argument("--data", default="../shared/data")
parser.add_argument("--tokenizer", action="append", default=[], type=pathlib.Path)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
data = pathlib.Path(options.data)


def training_text():
    for name in ("text/tinyshakespeare.txt", "translate/tatoeba_en_zh.tsv", "translate/multi30k_train.de"):
        yield from (data / name).read_text(encoding="utf-8").splitlines(keepends=True)


def data_files():
    """All text of the data folder, in documents of about 4 KB, and each file as one document."""
    for path in sorted(data.rglob("*")):
        if path.is_file():
            text = path.read_bytes().decode("utf-8")
            yield text
            for i in range(0, len(text), 4096):
                yield text[i : i + 4096]


def write_cases(folder, name, tokenizer, special, texts, encode):
    with open(folder / f"{name}.cases", "w") as file:
        file.write(json.dumps({"tokenizer": str(tokenizer), "special": special}) + "\n")
        for start in range(0, len(texts), 10_000):
            chunk = texts[start : start + 10_000]
            for text, ids in zip(chunk, encode(chunk)):
                file.write(text.encode().hex() + " " + " ".join(map(str, ids)) + "\n")


def hugging_face(path):
    tokenizer = Tokenizer.from_file(str(path))
    return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def main():
    texts = list(generate(options.strings, options.seed))
    everything = texts + list(data_files())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gpt2 = data / "tokenizers" / "gpt2"
        ranks = data_gym_to_mergeable_bpe_ranks(
            vocab_bpe_file=str(gpt2 / "merges.txt"), encoder_json_file=str(gpt2 / "vocab.json")
        )
        encoding = tiktoken.Encoding(
            "gpt2", pat_str=TIKTOKEN_PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
        )
        write_cases(folder, "tiktoken_gpt2", gpt2.resolve(), "text", everything, lambda t: map(encoding.encode_ordinary, t))
        parse = lambda t: (encoding.encode(x, allowed_special="all") for x in t)
        write_cases(folder, "tiktoken_gpt2_parse", gpt2.resolve(), "parse", texts, parse)

        plain = Tokenizer(models.BPE.from_file(str(gpt2 / "vocab.json"), str(gpt2 / "merges.txt")))
        plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        plain.add_special_tokens(["<|endoftext|>"])
        plain.save(str(folder / "gpt2.json"))
        write_cases(folder, "hf_gpt2", folder / "gpt2.json", "parse", everything, hugging_face(folder / "gpt2.json"))
        minimind = data / "tokenizers" / "minimind" / "tokenizer.json"
        write_cases(folder, "hf_minimind", minimind.resolve(), "default", everything, hugging_face(minimind))

        for number, path in enumerate(options.tokenizer):
            write_cases(folder, f"hf_reads_ours_{number}", path.resolve(), "default", everything, hugging_face(path))

        # Vocabularies trained by Hugging Face tokenizers, one for each split pattern, with NFC too.
        for pattern, regex in HF_PATTERNS.items():
            tokenizer = Tokenizer(models.BPE())
            split = pre_tokenizers.Split(Regex(regex), "isolated")
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            )
            if pattern == "qwen":
                tokenizer.normalizer = normalizers.NFC()
            tokenizer.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=6000,
                show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                special_tokens=["<|endoftext|>"],
            )
            tokenizer.train_from_iterator(training_text(), trainer)
            tokenizer.add_tokens(["ab", "naïve", tokenizers.AddedToken(" x ", lstrip=True, rstrip=True)])
            path = folder / f"trained_{pattern}.json"
            tokenizer.save(str(path))
            write_cases(folder, f"hf_trained_{pattern}", path, "default", texts, hugging_face(path))
            # The same merges as a rank file, under the name that gives it this pattern.
            if pattern in TIKTOKEN_PATTERNS:
                write_tiktoken(folder, pattern, tokenizer, texts)

        environment = os.environ | {"TIGHTLOOP_TOKENIZER_CASES": name}
        sys.exit(subprocess.run([options.tests, "--gtest_filter=TokenizerCases.*"], env=environment).returncode)


def write_tiktoken(folder, pattern, tokenizer, texts):
    import base64

    alphabet = {}
    other = 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            alphabet[chr(b)] = b
        else:
            alphabet[chr(other)] = b
            other += 1
    added = set(tokenizer.get_added_tokens_decoder())
    vocab = sorted((i, t) for t, i in tokenizer.get_vocab(with_added_tokens=False).items() if i not in added)
    ranks = {bytes(alphabet[c] for c in token): rank for rank, (_, token) in enumerate(vocab)}
    name = {"gpt2": "gpt2", "gpt4": "cl100k_base", "o200k": "o200k_base", "qwen": "qwen"}[pattern]
    path = folder / f"{name}.tiktoken"
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    encoding = tiktoken.Encoding(name, pat_str=TIKTOKEN_PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={})
    write_cases(folder, f"tiktoken_trained_{pattern}", path, "default", texts, lambda t: map(encoding.encode_ordinary, t))


if __name__ == "__main__":
    main()
