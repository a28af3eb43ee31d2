"""SIGKILL at random moments of a run that saves all the time: every one of them must be resumed."""
import re
import signal
import time

from faults.harness import remove
from faults.signals import saved_step

FAMILY = "SIGKILL, then resume"
SETTINGS = ["--train.steps", "100000000", "--train.save_steps", "5", "--train.keep_checkpoints", "1",
            "--train.keep_best", "true", "--train.eval_steps", "20", "--train.eval_batches", "1",
            "--train.lr", "0.0002", "--train.schedule", "constant"]
RESUMED = re.compile(rb"Resuming after step (\d+)")


def resumed_at(running):
    found = RESUMED.search(running.output())
    return int(found[1]) if found else None


def kill_and_resume(bench, run, running, number, rng):
    """Kills it; the run's next process, once it has said where it goes on. None where that did not happen."""
    # What is there before the kill is durable: the run must never go back behind it.
    durable = saved_step(run)
    running.send(signal.SIGKILL)
    killed = running.wait(bench.options.timeout)
    if killed.exit != -signal.SIGKILL:
        bench.record(FAMILY, f"kill {number}: the run had ended by itself", killed.failure() or "LOST", killed.last())
        return None
    left = ", ".join(sorted(path.name for path in (run / "checkpoints").iterdir()))
    if number % 5 == 0:  # and once more, while it starts
        starting = bench.start(["train", "--resume", run])
        time.sleep(rng.random())
        starting.send(signal.SIGKILL)
        starting.wait(bench.options.timeout)
    running = bench.start(["train", "--resume", run])
    case = f"kill {number} after step {durable}, left in checkpoints: {left}"
    if not running.until(lambda: resumed_at(running) is not None, bench.options.timeout):
        outcome = running.wait(0)
        bench.record(FAMILY, case, outcome.failure() or "LOST", outcome.last())
        return None
    step = resumed_at(running)
    bench.record(FAMILY, case, "recovered" if step >= durable else "LOST", f"resumed after step {step}")
    return running


def inject(bench):
    run, rng = bench.folder / "runs/killed", bench.random(FAMILY)
    remove(run)
    running = bench.start(bench.train("killed", *SETTINGS))
    if not running.until(lambda: saved_step(run) >= 5, bench.options.timeout):
        return bench.record(FAMILY, "the first checkpoint", "LOST", running.wait(0).last())
    for number in range(1, bench.options.kills + 1):
        time.sleep(rng.random() * 1.5)
        running = kill_and_resume(bench, run, running, number, rng)
        if not running:
            return
    running.send(signal.SIGTERM)
    last = running.wait(bench.options.timeout)
    if last.exit != 130:
        bench.record(FAMILY, "the end after all kills", last.failure() or "LOST", last.last())
    remove(run)
