"""Flipped bytes and cut files: each file that the program reads, damaged at random, and every verb that reads it."""
import concurrent.futures
import gzip
import json

from faults.harness import new_lines, remove, text, without_times

FAMILY = "damaged files"


def damage(path, rng):
    """Changes a file in one of the ways disks and copies do; says how."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "cut", "zeros"])
    if kind == "flip":
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        how = f"bit {bit} of byte {at} of {len(data)} flipped"
    elif kind == "cut":
        at = rng.choice([0, rng.randrange(len(data)), len(data) - 1])
        how = f"cut to {at} of {len(data)} bytes"
        del data[at:]
    else:
        at = rng.randrange(len(data))
        end = min(len(data), at + rng.choice([8, 512]))
        data[at:end] = bytes(end - at)
        how = f"bytes {at} to {end} of {len(data)} set to zero"
    path.write_bytes(data)
    return how


def resumed(bench, run):
    """Goes on with a run to its end: what it came to."""
    outcome = bench.resume(run)
    return outcome, bench.finished(run)


def generated(bench, model):
    outcome = bench.run("generate", "--model", model, "--device", "cpu", "--prompt", "the cat", "--temperature", "0",
                        "--max-tokens", "12", "--json")
    return outcome, without_times(outcome.text)


def evaluated(bench, model):
    sample = bench.folder / "sample.txt"
    if not sample.exists():
        sample.write_text(text("sample", 8))
    outcome = bench.run("eval", "--model", model, "--device", "cpu", "--input", sample, "--json")
    return outcome, without_times(outcome.text)


def held_out(bench, model):
    outcome = bench.run("eval", "--model", model, "--device", "cpu", "--json")
    return outcome, without_times(outcome.text)


def trained(*settings):
    """A new run of 6 steps on damaged data: what it came to."""
    def run(bench, place):
        name = f"on-{place.name}"
        remove(bench.folder / "runs" / name)
        how = [str(value).replace("PLACE", str(place)) for value in settings]
        outcome = bench.run(*bench.train(name, "--train.steps", "6", *how))
        result = bench.finished(bench.folder / "runs" / name)
        remove(bench.folder / "runs" / name)
        return outcome, result
    return run


def first(bench, name, *settings):
    """A folder that a first run fills: a cache of tokens, or an index."""
    def build():
        place = bench.folder / name
        bench.must(*bench.train(f"fills-{name}", "--train.steps", "6", "--data.cache", place, *settings))
        return place
    return bench.make(name, build)


def data_file(bench, name, content):
    def build():
        place = bench.folder / "files" / name
        place.mkdir(parents=True)
        (place / name).write_bytes(content)
        return place
    return bench.make(name, build)


def targets(bench):
    """What is damaged: name, folder, pattern of files, verbs that read it, whether we have checksums of it."""
    documents = text(bench.options.seed, 400)
    records = "".join(json.dumps({"text": line}) + "\n" for line in documents.split("\n\n")).encode()
    shards = trained("--data.source", "shards", "--data.train", "PLACE", "--tokenizer.path", "PLACE/tokenizer")
    run, whole = bench.half_run(), [resumed, generated, held_out]
    yield "checkpoint weights", run, "checkpoints/step-00000010/model.safetensors", whole, True
    yield "checkpoint optimizer", run, "checkpoints/step-00000010/optimizer.safetensors", [resumed], True
    yield "checkpoint state.json", run, "checkpoints/step-00000010/state.json", [resumed, generated], True
    yield "run config.yaml", run, "config.yaml", whole, True
    yield "run tokenizer", run, "tokenizer/*", whole, True
    yield "shards", bench.shards(), "**/*", [shards], True
    yield "token cache", first(bench, "cache"), "**/*", [trained("--data.cache", "PLACE")], True
    yield ("index of live data", first(bench, "index", "--data.tokenize", "live"), "**/*",
           [trained("--data.cache", "PLACE", "--data.tokenize", "live")], True)
    yield "Hugging Face weights", bench.exported(), "model.safetensors", [generated, evaluated], False
    yield "Hugging Face config.json", bench.exported(), "config.json", [generated, evaluated], False
    yield "Hugging Face tokenizer", bench.exported(), "tokenizer*.json", [generated, evaluated], False
    yield ("text file", data_file(bench, "plain.txt", documents.encode()), "*",
           [trained("--data.train", "PLACE/plain.txt")], False)
    yield ("JSONL file", data_file(bench, "records.jsonl", records), "*",
           [trained("--data.source", "jsonl", "--data.train", "PLACE/records.jsonl")], False)
    yield ("gzip file", data_file(bench, "packed.txt.gz", gzip.compress(documents.encode(), mtime=0)), "*",
           [trained("--data.train", "PLACE/packed.txt.gz")], True)


def judge(outcome, result, expected, before, file, checked):
    failure = outcome.failure()
    if failure:
        return failure
    if outcome.exit != 0:
        return "refused"
    if result == expected:
        return "no effect"
    said = [line for line in new_lines(outcome, before) if file.name in line or "warning" in line]
    if said:
        return "told"
    return "OTHER MEANING" if checked else "no checksum"


def trial(bench, name, folder, file, verb, checked, number, expected):
    rng = bench.random(FAMILY, name, file.name, number)
    place = bench.copy(folder, f"damaged-{name.replace(' ', '-')}-{number}")
    how = damage(place / file.relative_to(folder), rng)
    outcome, result = verb(bench, place)
    verdict = judge(outcome, result, expected[0], expected[1], file, checked)
    read_by = {resumed: "resume", generated: "generate", evaluated: "eval --input", held_out: "eval"}.get(verb, "train")
    bench.record(FAMILY, f"{name}: {file.relative_to(folder)}, {how}, {read_by}", verdict, outcome.last())
    remove(place)


def inject(bench):
    count = bench.options.count
    with concurrent.futures.ThreadPoolExecutor(bench.options.jobs) as pool:
        waiting = []
        for name, folder, pattern, verbs, checked in targets(bench):
            files = sorted(path for path in folder.glob(pattern) if path.is_file() and path.stat().st_size)
            expected = {}
            for verb in verbs:
                outcome, result = verb(bench, bench.copy(folder, f"unharmed-{name.replace(' ', '-')}"))
                if outcome.exit != 0:
                    bench.record(FAMILY, f"{name}, unharmed", "LOST", outcome.last())
                expected[verb] = result, outcome.text
            for number in range(count):
                verb, file = verbs[number % len(verbs)], files[number // len(verbs) % len(files)]
                waiting.append(pool.submit(trial, bench, name, folder, file, verb, checked, number, expected[verb]))
        for one in waiting:
            one.result()
