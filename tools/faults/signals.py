"""Signals in every phase of every long verb; afterwards the run goes on, or the same command works again."""
import re
import signal
import subprocess
import time

from faults.harness import remove, text, tree_hash

FAMILY = "signals"
SIGNALS = ["INT", "TERM", "HUP", "QUIT", "USR1", "PIPE", "XFSZ", "KILL"]
# A program that has not come to its end after this many seconds is deaf.
DEAF = 20


def stop(running, name):
    """Sends the signal and waits for the end. A program may go on after some, but must then heed SIGTERM."""
    number = getattr(signal, f"SIG{name}")
    running.send(number)
    if name in ("USR1", "PIPE", "XFSZ"):
        end = time.time() + 4
        while running.alive() and time.time() < end:
            time.sleep(0.02)
        running.send(signal.SIGTERM)
    return running.wait(DEAF)


def harm(outcome, name):
    """The verdict on the end itself: dying of the very signal is no crash, as long as nothing is lost by it."""
    if outcome.exit == -getattr(signal, f"SIG{name}"):
        return None
    return outcome.failure()


def big_text(bench):
    def build():
        rng, words = bench.random("big"), []
        for _ in range(60000):
            words.append("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))))
        path = bench.folder / "big.txt"
        path.write_text("\n\n".join(" ".join(rng.choices(words, k=60)) for _ in range(20000)) + "\n")
        return path
    return bench.make("big text", build)


def last_logged(run):
    """The last step that metrics.jsonl tells of."""
    try:
        steps = re.findall(r'"global_step": ?(\d+)', (run / "metrics.jsonl").read_text())
    except OSError:
        return 0
    return max(map(int, steps), default=0)


def saved_step(run):
    """The newest checkpoint, as the run's folder shows it."""
    names = [path.name[5:] for path in (run / "checkpoints").glob("step-*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


HEAVY = ["--model.width", "256", "--model.ffn", "2048", "--train.eval_steps", "0"]


def phases(bench):
    """The phases of training: its settings, and what shows from outside that it is there."""
    big = ["--data.train", big_text(bench), "--tokenizer.vocab_size", "2000", "--train.steps", "100000",
           "--train.eval_steps", "0"]
    long = ["--train.steps", "1000000", "--train.save_steps", "0", "--train.eval_steps", "0"]
    evaluating = ["--train.eval_steps", "1", "--train.eval_batches", "0", "--data.holdout", "0.5"]
    saving = [*HEAVY, "--model.layers", "2", "--train.steps", "100000", "--train.save_steps", "1"]
    return {
        "starting": (["--train.steps", "100000"], lambda run: True),
        "training the tokenizer": (big, lambda run: (run / "tokenizer").exists()),
        "tokenizing": (big, lambda run: any((run / "tokenizer").glob("*.json"))),
        "training": (long, lambda run: last_logged(run) >= 20),
        "evaluating": ([*long, *evaluating], lambda run: last_logged(run) >= 5),
        "saving": (saving, lambda run: saved_step(run) >= 2 and any((run / "checkpoints").glob("*.partial*"))),
    }


def goes_on(bench, run, command, durable, logged, name):
    """Whether the run is resumed at least where it was, or else is started again; the verdict."""
    steps = saved_step(run)
    if durable and steps < durable:
        return "LOST", f"step {durable} was saved; there is {steps or 'none'}"
    if name != "KILL" and logged and steps < logged:
        return "LOST", f"step {logged} was logged; saved is {steps or 'none'}"
    if steps:
        again = bench.run("train", "--resume", run, "--train.stop_at", str(steps + 2))
    else:
        again = bench.run(*command, "--train.stop_at", "2")
        if again.exit == 2 and "--overwrite" in again.text:
            again = bench.run(*command, "--train.stop_at", "2", "--overwrite")
    failure = again.failure() or ("LOST" if again.exit != 0 else None)
    return failure or "recovered", again.last()


def train(bench, phase, settings, reached, name):
    run = bench.folder / "runs" / f"signal-{name}-{phase.replace(' ', '-')}"
    remove(run)
    command = bench.train(run.name, *settings)
    running = bench.start(command)
    if not running.until(lambda: reached(run), bench.options.timeout):
        outcome = running.wait(0)
        return bench.record(FAMILY, f"SIG{name} while {phase}", "skipped", f"not seen; {outcome.last()}")
    time.sleep(bench.random(FAMILY, phase, name).random() * {"starting": 0.5, "saving": 0.01}.get(phase, 0.1))
    durable, logged = saved_step(run), last_logged(run)
    outcome = stop(running, name)
    verdict, detail = harm(outcome, name), outcome.last()
    if not verdict:
        verdict, detail = goes_on(bench, run, command, durable, logged, name)
    bench.record(FAMILY, f"SIG{name} while {phase}", verdict, detail)
    remove(run)


def written_again(bench, what, command, place, reached, name):
    """prepare and export: after the signal the same command writes what it would have written."""
    def build():
        bench.must(*command)
        value = tree_hash(place)
        remove(place)
        return value
    expected = bench.make(f"expected {what}", build)
    remove(place)
    running = bench.start(command)
    running.until(reached, bench.options.timeout)
    time.sleep(bench.random(FAMILY, what, name).random() * 0.05)
    outcome = stop(running, name)
    verdict, detail = harm(outcome, name), outcome.last()
    if not verdict:
        again = bench.run(*command)
        finished = place.exists() and "exists already" in again.text  # it was done before the signal came
        right = (again.exit == 0 or finished) and tree_hash(place) == expected
        verdict, detail = again.failure() or ("recovered" if right else "LOST"), again.last()
    bench.record(FAMILY, f"SIG{name} while {what}", verdict, detail)
    remove(place)


def reader(bench, what, command, name, input=None):
    """generate, chat, eval: they hold nothing that could be lost, but must hear the signal and end in order."""
    running = bench.start(command, stdin=subprocess.PIPE if input else subprocess.DEVNULL)
    if input:
        running.process.stdin.write(input)
        running.process.stdin.flush()
    time.sleep(1.0 + bench.random(FAMILY, what, name).random())
    done = not running.alive()
    if input and name == "INT":  # stops an answer, not the conversation: that ends with the questions, or by SIGTERM
        running.send(signal.SIGINT)
        time.sleep(1)
        outcome = stop(running, "TERM")
    else:
        outcome = stop(running, name)
    if input and not running.process.stdin.closed:
        running.process.stdin.close()
    verdict = harm(outcome, name) or ("skipped" if done else "recovered")
    bench.record(FAMILY, f"SIG{name} during {what}", verdict, outcome.last())


def calls(bench, name):
    """Every phase with one signal."""
    model = bench.make("heavy", lambda: heavy_run(bench))
    sample, prompts = bench.folder / "long.txt", bench.folder / "prompts.txt"
    sample.write_text(text("long", 20000))
    prompts.write_text("the cat\n" * 400)
    shards, hf = bench.folder / "again-shards", bench.folder / "again-hf"
    prepare = ["prepare", bench.recipe, "--data.train", big_text(bench), "--output", shards, "--shard-tokens", "50000"]
    export = ["export", "--run", model, "--to", hf, "--dtype", "fp32"]
    use = ["--model", model, "--device", "cpu"]
    for phase, (settings, reached) in phases(bench).items():
        yield train, phase, settings, reached, name
    yield written_again, "preparing", prepare, shards, lambda: shards.exists() and any(shards.iterdir()), name
    yield written_again, "exporting", export, hf, lambda: any(bench.folder.glob("again-hf*")), name
    yield reader, "generate", ["generate", *use, "--prompts", prompts, "--n", "20"], name
    yield reader, "chat", ["chat", *use, "--max-tokens", "100000"], name, b"hello\n" * 500
    yield reader, "eval", ["eval", *use, "--input", sample], name


def heavy_run(bench):
    bench.must(*bench.train("heavy", *HEAVY, "--model.layers", "4", "--train.steps", "2"))
    return bench.folder / "runs/heavy"


def inject(bench):
    work = [call for name in SIGNALS for call in calls(bench, name)]
    if bench.options.quick:
        work = bench.random(FAMILY, "quick").sample(work, 4)
    for judge, *what in work:
        judge(bench, *what)
