"""Strings that tokenizers may disagree on, and the split patterns as their libraries write them."""
import random
import unicodedata

_CL100K = r"""[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
_ANY_CASE = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)"""
_O200K = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
TIKTOKEN_PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "gpt4": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k": _O200K,
    "qwen": _ANY_CASE + "|" + _CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
}
HF_PATTERNS = {
    "gpt2": r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "gpt4": _ANY_CASE + "|" + _CL100K.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+"),
    "llama3": _ANY_CASE + "|" + _CL100K,
    "o200k": _O200K,
    "qwen": TIKTOKEN_PATTERNS["qwen"],
    "nanochat": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+""",
}

_SPACES = [" ", " ", " ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u3000", "\u200b", "\ufeff"]
_BITS = ["'s", "'S", "'ll", "'LL", "'lL", "'re", "'Ve", "'m", "'D", "'t", "'\u017f", "\u2019s", "''", "'x", "don't", "I'LL", "n't's"]
_BITS += ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "<think>", "<|endoftext|", "<<|endoftext|>>", " x ", "ab", "nai\u0308ve", "na\xefve"]
_BITS += ["/", "//", "/\n", "...", "!?", "--", "\\n", "{}", "();\n", "http://a.b/c?d=1", "#!", "1", "12", "123", "1234", "3.14", "\xbd", "\u0661\u0662", "\u2167", "\u5341"]
_BITS += ["a", "B", "the", " the", "The", "THE", "CamelCase", "XMLHttp", "\u01c5a", "\xe9", "e\u0301", "\u0301", "A\u0301", "\u4e2dA", "\u4e2dAb", "\u02b0B", "\u00aa", "\ud55c", "\u1112\u1161\u11ab"]
_BITS += ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\u2764\ufe0f", "\U0001F44D\U0001F3FD", "\x00", "\x01", "\x1b[0m", "\x7f", "\u202e", "\ue000", "\uffff", "\U0010ffff"]
_BITS += ["\u0344", "\u0958", "\u2126", "\u212b", "\ufb1d", "\u0f73", "q\u0307\u0323", "\u1e9b\u0323", "a\u0315\u0300\u05ae\u0062"]


def _blocks():
    """Runs of 256 code points that have at least one character each."""
    result = []
    for first in range(0, 0x110000, 256):
        if 0xD800 <= first <= 0xDFFF:
            continue
        if any(unicodedata.category(chr(c)) not in ("Cn", "Co") for c in range(first, first + 256)):
            result.append(first)
    return result


def generate(count, seed=1):
    """Yields `count` strings: every script, emoji, control characters, and what the patterns turn on."""
    rng = random.Random(seed)
    blocks = _blocks()
    for index in range(count):
        block = blocks[index % len(blocks)]
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.35:
                parts.append("".join(chr(block + rng.randrange(256)) for _ in range(rng.randint(1, 6))))
            elif kind < 0.65:
                parts.append(rng.choice(_BITS))
            elif kind < 0.9:
                parts.append("".join(rng.choice(_SPACES) for _ in range(rng.randint(1, 3))))
            elif kind < 0.97:
                c = rng.randrange(0x110000)
                parts.append(chr(c) if not 0xD800 <= c <= 0xDFFF else "\ufffd")
            else:
                parts.append(rng.choice("abA1 '\n.\u4e2d\u0301") * rng.randint(5, 40))
        yield "".join(parts)
