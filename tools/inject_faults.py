#!/usr/bin/env python3
"""Injects faults into a built tightloop from outside and judges what comes of them (docs/faults.md).

No crash, no hang, nothing lost, nothing accepted with another meaning in silence. Needs Python 3 alone.

usage: tools/inject_faults.py [--only FAMILY] [--count N] [--kills N] [--seed N] [--quick]
"""
import argparse
import collections
import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from faults import changes, checkpoints, damage, hostile, kills, limits, signals, together  # noqa: E402
from faults.harness import ALLOWED, FORBIDDEN, Bench  # noqa: E402

FAMILIES = {"damage": damage, "signals": signals, "limits": limits, "together": together, "changes": changes,
            "hostile": hostile, "kills": kills, "checkpoints": checkpoints}


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--program", type=pathlib.Path, default=root / "build/tightloop",
                        help="what is tested (default: build/tightloop)")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="this family; may be given several times")
    parser.add_argument("--seed", type=int, default=1, help="another seed damages other bytes at other moments")
    parser.add_argument("--count", type=int, default=0,
                        help="damages of each kind of file (default 24), trials of two at once (default 4)")
    parser.add_argument("--kills", type=int, default=0,
                        help="SIGKILLs at random moments, each followed by --resume (default 200)")
    parser.add_argument("--terms", type=int, default=0, help="SIGTERMs, each followed by --resume (default 50)")
    parser.add_argument("--minutes", type=float, default=5, help="of a run that is killed every 20 s (default 5)")
    parser.add_argument("--offsets", type=int, default=0, help="damages of one checkpoint's files (default 1000)")
    parser.add_argument("--quick", action="store_true", help="a few of each, in about a minute")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a call hangs")
    parser.add_argument("--jobs", type=int, default=2, help="damages tried at the same time")
    parser.add_argument("--verbose", action="store_true", help="show what was as it should be too")
    chosen = parser.parse_args()
    chosen.trials = chosen.count or (1 if chosen.quick else 4)
    chosen.count = chosen.count or (1 if chosen.quick else 24)
    chosen.kills = chosen.kills or (3 if chosen.quick else 200)
    chosen.terms = chosen.terms or (2 if chosen.quick else 50)
    chosen.offsets = chosen.offsets or (6 if chosen.quick else 1000)
    if not os.access(chosen.program, os.X_OK):
        sys.exit(f"inject_faults.py: there is no program '{chosen.program}'. Build it (tools/build release tightloop), "
                 "or name one with --program.")
    chosen.program = chosen.program.resolve()
    return chosen


def table(counts):
    seen = {name for count in counts.values() for name in count}
    verdicts = [name for name in [*ALLOWED, *FORBIDDEN] if name in ALLOWED or name in seen]
    rows = [["", "faults", *verdicts]]
    for family, count in counts.items():
        rows.append([family, sum(count.values()), *(count[name] for name in verdicts)])
    rows.append(["all", *(sum(row[column] for row in rows[1:]) for column in range(1, len(rows[0])))])
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main():
    chosen = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that mounts and processes go away
    with tempfile.TemporaryDirectory(prefix="tightloop-faults-", ignore_cleanup_errors=True) as folder:
        bench = Bench(chosen.program, pathlib.Path(folder), chosen)
        for name in chosen.only or FAMILIES:
            family, started = FAMILIES[name], time.time()
            print(f"{name}: {family.__doc__.splitlines()[0]}", flush=True)
            try:
                family.inject(bench)
            finally:
                bench.close()
            count = sum((bench.counts[each] for each in getattr(family, "FAMILIES", [family.FAMILY])),
                        collections.Counter())
            print(f"{name}: {sum(count.values())} faults in {time.time() - started:.0f} s: "
                  + ", ".join(f"{number} {verdict}" for verdict, number in count.most_common()), flush=True)
    print("\n" + table(bench.counts))
    for family, case, verdict, detail in bench.found:
        print(f"\n{verdict} ({FORBIDDEN[verdict]})\n  {family}: {case}\n  {detail}")
    total = sum(sum(count.values()) for count in bench.counts.values())
    print(f"\n{total} faults, {len(bench.found)} not as they must be")
    sys.exit(1 if bench.found else 0)


main()
