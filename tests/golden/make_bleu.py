#!/usr/bin/env python3
"""Writes bleu.json: small corpora with the scores of sacreBLEU.

usage: .deps/peers/bin/python tests/golden/make_bleu.py
"""
import json
import pathlib

from bleu_corpora import corpora

path = pathlib.Path(__file__).parent / "bleu.json"
lines = [json.dumps(corpus, ensure_ascii=True) for corpus in corpora(24, seed=7, most=6)]
path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
