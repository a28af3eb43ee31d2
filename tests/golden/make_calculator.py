"""Makes calculator.json: expressions and what nanochat's calculator answers, for tests/infer/calculator_test.cpp.

    .deps/peers/bin/python tests/golden/make_calculator.py PATH_OF_NANOCHAT

Random expressions of every shape that the calculator's characters can spell, right and wrong ones, and texts with count().
An answer is what Python's str() makes of it, or null. Left out are the attributes of texts and numbers that ours does not have.
"""
import json
import pathlib
import random
import sys
import types

if len(sys.argv) != 2:
    sys.exit(__doc__)
sys.path.insert(0, sys.argv[1])
sys.modules["rustbpe"] = types.ModuleType("rustbpe")  # only trains tokenizers
from nanochat.engine import use_calculator

FIXED = ["", " ", "1+1", "10/2", "3*4", "12/60", "0.2*50", "1,234+1", "1,234.5*2", "2**3", "2* *3", "1/0", "1.0/0", "0//0", "-7//2", "7//-2",
         "-7/2", "7.5//2", "-7.5//2", "7.5//-2", "(1", "1)", "((2))", "1 2", "1.2.3", ".", ".5", "5.", "1..2", "007", "00", "007.5", "0",
         "-0", "-0.0", "+5", "--5", "-+-5", "1-(-1)", "2(3)", "1e5", "1/3", "2/3", "10/3", "100000000*100000000", "0.1+0.2", "1e400",
         "99999999999999999999*99999999999999999", "123456789012345678901234567890/7", "1/123456789012345678901234567890",
         "12345678901234567890/3.7", "1" + "0" * 30 + "/3", "10000000000000000.0", "1000000000000000.0", "0.0001", "0.00001", "1.0/3000000",
         "9007199254740993/1", "9007199254740993*1.0", "9007199254740995/2", "1/9007199254740993", "170141183460469231731/1267650600228229401496703205376",
         "(1+2)*(3+4)/(5-6)", " 1 + 2 ", "1 / / 2", "1 // 2", "3 - - 3", "abc", "1+a", "50%", "$5", "5;6", "1==1", "1<2",
         "'strawberry'.count('r')", '"strawberry".count("r")', "'banana'.count('an')", "'aaaa'.count('aa')", "'abc'.count('')", "''.count('a')",
         "'Hello World'.count('o')", "('abc').count('a')", "'abc'.count(('a'))", "'ab' 'ab'.count('a')", "'abc'.upper().count('A')",
         "'ABC'.lower().count('a')", "'abc'.count(a)", "'abc'.count('a') + 1", "'it'.count('i')extra", "'abc.count('a')",
         "'import'.count('i')", "'x__y'.count('x')", "'directory'.count('d')", "'abc'.find('a')", "abc.count('a')", "'abc'.count(1)",
         "'a.count('", "'a,b'.count('b')", "'abc'.count('a')'", "\"it's\".count('s')", "'abc' .count('a')", "'abc'. count('a')", "'abc'.count('b')  ",
         " 'abc'.count('b')", "'abc'.count('a').count('b')"]


def number(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return str(rng.randrange(10))
    if kind == 1:
        return str(rng.randrange(10 ** rng.randrange(1, 16)))
    if kind == 2:
        return f"{rng.random() * 10 ** rng.randrange(-4, 9):.{rng.randrange(1, 8)}f}"
    if kind == 3:
        return f"{rng.randrange(1000, 10 ** 7):,}"
    if kind == 4:
        return f"{rng.randrange(100)}."
    return f".{rng.randrange(1000)}"


def expression(rng, depth):
    kind = rng.randrange(5) if depth > 0 else 0
    space = rng.choice(["", "", " "])
    if kind <= 1:
        return rng.choice(["", "", "", "-", "+"]) + number(rng)
    if kind == 2:
        return f"({space}{expression(rng, depth - 1)}{space})"
    return expression(rng, depth - 1) + space + rng.choice(["+", "-", "*", "/", "//"]) + space + expression(rng, depth - 1)


def text_call(rng):
    word = "".join(rng.choice("abrAB") for _ in range(rng.randrange(12)))
    wanted = "".join(rng.choice("abrAB") for _ in range(rng.randrange(3)))
    q, r = rng.choice("'\""), rng.choice("'\"")
    return f"{q}{word}{q}.count({r}{wanted}{r})"


def main():
    rng = random.Random(5)
    cases = FIXED + [expression(rng, rng.randrange(1, 5)) for _ in range(1500)] + [text_call(rng) for _ in range(150)]
    for _ in range(350):  # noise
        cases.append("".join(rng.choice("0123456789*+-/.() ,") for _ in range(rng.randrange(1, 10))))
    answers = []
    for text in dict.fromkeys(cases):
        value = use_calculator(text)
        if value is ... or isinstance(value, tuple):
            continue  # "..." and "()" are no numbers
        if isinstance(value, int) and abs(value) >= 2 ** 126:
            continue  # beyond what ours holds
        answers.append([text, None if value is None else str(value)])
    path = pathlib.Path(__file__).with_name("calculator.json")
    path.write_text("[\n" + ",\n".join(json.dumps(a) for a in answers) + "\n]\n")
    print(len(answers), "cases,", sum(a[1] is not None for a in answers), "with an answer,", path.stat().st_size, "bytes")


main()
