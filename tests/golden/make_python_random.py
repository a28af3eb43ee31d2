"""Makes python_random.json: shuffles and samples of Python's random module, for tests/core/python_random_test.cpp.

    python3 tests/golden/make_python_random.py
"""
import json
import pathlib
import random

SEEDS = [0, 1, 42, 1234, 1337, 2 ** 32 - 1, 2 ** 32, 2 ** 40 + 5, 2 ** 63 - 25]


def main():
    out = {"words": [], "shuffles": [], "samples": []}
    for seed in SEEDS:
        rng = random.Random(seed)
        out["words"].append([seed, [rng.getrandbits(32) for _ in range(700)][-5:]])  # past the first 624
        for size in (0, 1, 2, 7, 100):
            items = list(range(size))
            random.Random(seed).shuffle(items)
            out["shuffles"].append([seed, items])
    # On both sides of where sample() takes a set in place of a list.
    for size, count in [(1, 1), (5, 5), (20, 3), (21, 5), (22, 5), (37, 6), (84, 6), (85, 6), (86, 6), (85, 10), (86, 10), (278, 25), (300, 25), (10042, 10)]:
        for seed in SEEDS[:6]:
            out["samples"].append([seed, size, random.Random(seed).sample(range(size), count)])
    path = pathlib.Path(__file__).with_name("python_random.json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print(path.stat().st_size, "bytes")


main()
