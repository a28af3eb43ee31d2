#!/usr/bin/env python3
"""Compares our BLEU and chrF with sacreBLEU's, corpus and sentences, on random corpora and on damaged copies of the
translations in a data folder, for every tokenization. Prints the p-values of both paired bootstraps too: they draw
different samples, so they agree roughly.

It writes sacreBLEU's scores beside the sentences and runs the test BleuCases of tests_plain over them.

usage: .deps/peers/bin/python tools/compare_bleu.py [--corpora 500] [--build build] [--data DIR] [--seed 1]
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "golden"))
from bleu_corpora import TOKENIZERS, corpora, damaged, scored  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--corpora", type=int, default=500)
parser.add_argument("--build", default="build", type=pathlib.Path)
parser.add_argument("--data", default="../shared/data", type=pathlib.Path)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()


def real_sets():
    translate = options.data / "translate"
    for name in ("multi30k_test_2016_flickr.de", "multi30k_test_2016_flickr.en", "multi30k_val.de"):
        if (translate / name).exists():
            yield name, (translate / name).read_text(encoding="utf-8").splitlines()
    if (translate / "tatoeba_en_zh.tsv").exists():
        pairs = [line.split("\t")[:2] for line in (translate / "tatoeba_en_zh.tsv").read_text(encoding="utf-8").split("\n")]
        pairs = [pair for pair in pairs if len(pair) == 2]
        yield "tatoeba.en", [pair[0] for pair in pairs]
        yield "tatoeba.zh", [pair[1] for pair in pairs]


def compare_bootstraps(folder, references, first, second):
    for name, lines in (("ref", references), ("one", first), ("two", second)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [options.build / "tightloop", "bleu", "--json", "--ref", "ref", "--hyp", "one", "--hyp2", "two"]
    ours = json.loads(subprocess.run([command[0].resolve(), *command[1:]], cwd=folder, stdout=subprocess.PIPE, check=True).stdout)
    _, theirs = PairedTest(
        [("one", first), ("two", second)], {"BLEU": BLEU(), "chrF": CHRF()}, [references], test_type="bs"
    )()
    for ours_name, theirs_name in (("bleu", "BLEU"), ("chrf", "chrF2")):
        result, peer = ours["bootstrap"][ours_name], theirs[theirs_name][1]
        print(
            f"bootstrap {theirs_name}: ours p {result['p_value']:.3f}, {result['second']['mean']:.2f} +- "
            f"{result['second']['interval']:.2f}; sacreBLEU p {peer.p_value:.3f}, {peer.mean:.2f} +- {peer.ci:.2f}"
        )
        if abs(result["p_value"] - peer.p_value) > 0.05 or abs(result["second"]["mean"] - peer.mean) > 0.4:
            sys.exit("the bootstraps disagree")


def main():
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with open(folder / "cases", "w") as file:
            for corpus in corpora(options.corpora, options.seed, most=40):
                file.write(json.dumps(corpus) + "\n")
            for name, references in real_sets():
                hypotheses = [damaged(rng, text) for text in references]
                for tokenize in TOKENIZERS:
                    for lowercase in (False, True):
                        file.write(json.dumps(scored(name, tokenize, lowercase, references, hypotheses)) + "\n")
        environment = os.environ | {"TIGHTLOOP_BLEU_CASES": str(folder / "cases")}
        done = subprocess.run([options.build / "tests_plain", "--gtest_filter=BleuCases.*"], env=environment)
        if done.returncode != 0:
            sys.exit(done.returncode)
        for _, references in real_sets():
            first, second, third = ([damaged(rng, text) for text in references[:500]] for _ in range(3))
            compare_bootstraps(folder, references[:500], first, second)
            better = [r if rng.random() < 0.02 else h for r, h in zip(references, third)]
            compare_bootstraps(folder, references[:500], third, better)
            break


if __name__ == "__main__":
    main()
