#!/usr/bin/env python3
"""Makes the files of the journeys from a seed: prose, conversations in each record shape, sentence pairs.
usage: make.py text BYTES | chats SHAPE COUNT | pairs COUNT SOURCE_FILE TARGET_FILE      (text and chats go to standard output)"""
import json
import random
import sys

NOUNS = "river garden lamp teacher horse letter window baker ship forest stone child singer road market storm clock farmer bridge fox".split()
VERBS = "finds follows paints carries watches repairs forgets hears crosses keeps".split()
QUALITIES = "old quiet small bright green heavy early narrow patient cold".split()
PLACES = ["near the harbour", "behind the mill", "in the morning", "before the rain", "under the tall trees", "at the end of the street"]
GERMAN = {"river": "fluss", "garden": "garten", "lamp": "lampe", "teacher": "lehrer", "horse": "pferd", "letter": "brief", "window": "fenster",
          "baker": "baecker", "ship": "schiff", "forest": "wald", "stone": "stein", "child": "kind", "singer": "saenger", "road": "strasse",
          "market": "markt", "storm": "sturm", "clock": "uhr", "farmer": "bauer", "bridge": "bruecke", "fox": "fuchs"}
OTHER_VERBS = {"finds": "findet", "follows": "verfolgt", "paints": "malt", "carries": "traegt", "watches": "sieht", "repairs": "repariert",
               "forgets": "vergisst", "hears": "hoert", "crosses": "quert", "keeps": "behaelt"}


def sentence(draw):
    text = f"the {draw.choice(QUALITIES)} {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} {draw.choice(PLACES)}."
    return text[0].upper() + text[1:]


def paragraph(draw):
    return " ".join(sentence(draw) for _ in range(draw.randint(3, 7)))


def text(draw, size):
    """Paragraphs between blank lines. A large text repeats paragraphs of a fixed stock in random order, to be made quickly."""
    stock = [paragraph(draw) + "\n\n" for _ in range(2000)]
    written = 0
    while written < size:
        part = "".join(draw.choices(stock, k=500))[: size - written]
        sys.stdout.write(part)
        written += len(part)


def chat(draw, shape):
    one, other = draw.sample(NOUNS, 2)
    question = f"What does the {one} see?"
    answer = f"The {one} sees the {draw.choice(QUALITIES)} {other}."
    return {
        "messages": {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]},
        "conversations": {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]},
        "question": {"question": question, "answer": answer},
        "alpaca": {"instruction": question, "input": "", "output": answer},
        "prompt": {"prompt": question, "completion": answer},
    }[shape]


def pair(draw):
    subject, verb, thing = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)
    return f"the {subject} {verb} the {thing}.", f"{GERMAN[subject]} {OTHER_VERBS[verb]} {GERMAN[thing]}."


def main(kind, *options):
    draw = random.Random(14)
    if kind == "text":
        text(draw, int(options[0]))
    elif kind == "chats":
        for _ in range(int(options[1])):
            print(json.dumps(chat(draw, options[0])))
    elif kind == "pairs":
        with open(options[1], "w") as source, open(options[2], "w") as target:
            for _ in range(int(options[0])):
                one, other = pair(draw)
                print(one, file=source)
                print(other, file=target)
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
