#!/usr/bin/env python3
"""Writes tests/golden/tokenizer.json: a small vocabulary, strings, and the ids that Hugging Face tokenizers and tiktoken
give for them, with each split pattern, normalizer and kind of added token.

usage: .deps/python/bin/python tests/golden/make_tokenizer.py
"""
import json
import pathlib

import tiktoken
import tokenizers
from tokenizer_strings import HF_PATTERNS, TIKTOKEN_PATTERNS, generate
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

TEXT = [
    "It's a truth that we'll all see: 12 cats, 1234 dogs and 3.14 birds don't agree.\n\n  HTTPServer(x) { return 'ok'; }\n",
    "Die Größe der Straße ändert sich nicht. Où êtes-vous? El niño comió. Привет, мир! Καλημέρα κόσμε.\n",
    "中文的句子没有空格。你好，世界！日本語のテキスト。한국어 문장입니다.\n" * 2,
    "the the the and and of to in that is was he for it with as his on be at by I\r\n\tthis had not are but from or have\n",
]


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=520,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def variants(tokenizer):
    def step(split):
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    yield "byte_level", tokenizer
    for name, regex in HF_PATTERNS.items():
        tokenizer.pre_tokenizer = step(pre_tokenizers.Split(Regex(regex), "isolated"))
        yield name, tokenizer
    tokenizer.pre_tokenizer = step(pre_tokenizers.Split(Regex(r"\p{Han}+|[0-9]|\w+|[^\w\s]+|\s+"), "isolated"))
    yield "other_regex", tokenizer
    steps = [r"[0-9]{1,2}", r"\p{Han}+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
    steps = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in steps]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    yield "three_regexes", tokenizer
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for single in (True, False):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=single), words])
        yield f"digits_{single}", tokenizer
    steps = [pre_tokenizers.Split(Regex(HF_PATTERNS["gpt4"]), "isolated"), pre_tokenizers.Digits(individual_digits=True)]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    yield "split_and_digits", tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens(
        [
            tokenizers.AddedToken("ab", single_word=True),
            tokenizers.AddedToken(" x ", lstrip=True, rstrip=True),
            tokenizers.AddedToken("na\u00efve", normalized=True),
            tokenizers.AddedToken("<|im_start|>", lstrip=True),
        ]
    )
    yield "nfc_added_prefix", tokenizer


def main():
    texts = [text for text in generate(4000, seed=20) if 4 <= len(text) <= 45][:75]
    # PCRE2 has an older Unicode than the peers, so its strings stay with long known characters.
    plain = [text for text in texts if all(ord(c) < 0x3000 for c in text)][:40] + TEXT
    tokenizer = train()
    golden = {"texts": texts + TEXT, "plain_texts": plain, "variants": []}
    base = None
    for name, variant in variants(tokenizer):
        file = json.loads(variant.to_str())
        if base is None:
            base = file["model"]
            golden["model"] = base
        file["model"] = None
        some = golden["plain_texts" if "_regex" in name else "texts"]
        ids = [variant.encode(text, add_special_tokens=False).ids for text in some]
        golden["variants"].append({"name": name, "file": file, "ids": ids})
    golden["tiktoken"] = []
    alphabet = [c for c in range(256) if 33 <= c <= 126 or 161 <= c <= 172 or c >= 174]
    bytes_of = {chr(c): c for c in alphabet}
    bytes_of |= {chr(256 + i): c for i, c in enumerate(c for c in range(256) if c not in alphabet)}
    tokens = sorted((i, t) for t, i in base["vocab"].items() if t != "<|endoftext|>")
    ranks = {bytes(bytes_of[c] for c in token): rank for rank, (_, token) in enumerate(tokens)}
    for name, pattern in TIKTOKEN_PATTERNS.items():
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        golden["tiktoken"].append({"name": name, "ids": [encoding.encode_ordinary(text) for text in golden["texts"]]})
    path = pathlib.Path(__file__).parent / "tokenizer.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
