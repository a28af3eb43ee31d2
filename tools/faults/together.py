"""Two processes at once in one place: both succeed, or one says why it must not."""
from faults.harness import remove, tree_hash

FAMILY = "two at once"


def both(bench, first, second):
    started = [bench.start(first), bench.start(second)]
    return [one.wait(bench.options.timeout) for one in started]


def judge(outcomes, right):
    """`right`: what is there afterwards is what one process alone would have made."""
    for outcome in outcomes:
        if outcome.failure():
            return outcome.failure()
    if all(outcome.exit for outcome in outcomes):
        return "LOST"
    if not right:
        return "OTHER MEANING"
    return "refused" if any(outcome.exit for outcome in outcomes) else "recovered"


def inject(bench):
    runs = bench.folder / "runs"
    six = ["--train.steps", "6"]
    bench.make("alone", lambda: bench.must(*bench.train("alone", *six)))
    alone = bench.finished(runs / "alone")
    whole, shards, hf = bench.whole()[0], tree_hash(bench.shards()), tree_hash(bench.exported())
    for trial in range(bench.options.trials):
        cache = bench.folder / "shared-cache"
        for how in ("start", "live"):
            settings = [*six, "--data.cache", cache, "--data.tokenize", how]
            outcomes = both(bench, bench.train("left", *settings), bench.train("right", *settings))
            results = [bench.finished(runs / name) for name in ("left", "right")]
            right = all(result == alone for result, outcome in zip(results, outcomes) if outcome.exit == 0)
            verdict = judge(outcomes, right)
            if verdict == "refused":  # a cache is there to be shared
                verdict = "LOST"
            bench.record(FAMILY, f"two trainings with one data.cache ({how}), trial {trial}", verdict, worst(outcomes))
            for place in (cache, runs / "left", runs / "right"):
                remove(place)
        outcomes = both(bench, bench.train("one", *six), bench.train("one", *six))
        verdict = judge(outcomes, bench.finished(runs / "one") == alone)
        bench.record(FAMILY, f"two trainings in one run's folder, trial {trial}", verdict, worst(outcomes))
        remove(runs / "one")
        run = bench.copy(bench.half_run(), "twice")
        resume = ["train", "--resume", run, "--train.stop_at", "0"]
        outcomes = both(bench, resume, resume)
        verdict = judge(outcomes, bench.finished(run) == whole)
        bench.record(FAMILY, f"a run resumed twice, trial {trial}", verdict, worst(outcomes))
        place = bench.folder / "two-shards"
        command = ["prepare", bench.recipe, "--output", place, "--shard-tokens", "4000"]
        outcomes = both(bench, command, command)
        right = place.exists() and tree_hash(place) == shards
        bench.record(FAMILY, f"two prepare into one folder, trial {trial}", judge(outcomes, right), worst(outcomes))
        remove(place)
        place = bench.folder / "two-hf"
        command = ["export", "--run", bench.half_run(), "--to", place, "--dtype", "fp32"]
        outcomes = both(bench, command, command)
        right = place.exists() and tree_hash(place) == hf
        bench.record(FAMILY, f"two export into one folder, trial {trial}", judge(outcomes, right), worst(outcomes))
        remove(place)


def worst(outcomes):
    return max(outcomes, key=lambda outcome: outcome.exit if outcome.exit is not None else 999).last()
