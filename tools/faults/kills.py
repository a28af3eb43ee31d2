"""SIGKILL at random moments of a run that saves all the time: every one of them must be resumed.

Three counts: kills at random moments, SIGTERMs (each a clean save), and a kill every 20 s whose run must come to the
same bits as one that nobody disturbed.
"""
import hashlib
import itertools
import re
import signal
import time

from faults.harness import remove
from faults.signals import last_logged, saved_step

FAMILY = "SIGKILL, then resume"
TERMS = "SIGTERM, then resume"
STEADY = "killed all the time"
FAMILIES = [FAMILY, TERMS, STEADY]
INTERVAL = 5
ENDLESS = ["--train.steps", "100000000", "--train.lr", "0.0002", "--train.schedule", "constant"]
SETTINGS = [*ENDLESS, "--train.save_steps", str(INTERVAL), "--train.keep_checkpoints", "1", "--train.keep_best", "true",
            "--train.eval_steps", "20", "--train.eval_batches", "1", "--train.logging_steps", "1",
            "--train.loss_extract_interval", "1"]
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
    reached = last_logged(run)
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
    # A save may have been under way; the one before it was done, since saves wait for one another.
    again = max(0, reached - step)
    behind = reached // INTERVAL * INTERVAL - step
    right = step >= durable and behind <= INTERVAL
    bench.record(FAMILY, case, "recovered" if right else "LOST",
                 f"resumed after step {step} of {reached}: {again} steps to do again")
    return running


def kills(bench):
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


def terms(bench):
    """Every SIGTERM saves the step that was reached, whole, and leaves nothing unfinished behind."""
    run, rng = bench.folder / "runs/asked", bench.random(TERMS)
    remove(run)
    command = bench.train("asked", *ENDLESS, "--train.save_steps", "0", "--train.eval_steps", "0")
    for number in range(1, bench.options.terms + 1):
        before = saved_step(run)
        running = bench.start(command)
        running.until(lambda: last_logged(run) > before, bench.options.timeout)
        time.sleep(rng.random() * 0.3)
        logged = last_logged(run)
        running.send(signal.SIGTERM)
        outcome = running.wait(bench.options.timeout)
        whole = bench.run("checkpoint", "verify", run)
        unfinished = [path.name for path in (run / "checkpoints").iterdir() if not path.name[5:].isdigit()]
        right = outcome.exit == 130 and whole.exit == 0 and saved_step(run) >= logged > before and not unfinished
        bench.record(TERMS, f"SIGTERM {number} after step {logged}", "recovered" if right else "LOST",
                     f"saved {saved_step(run)}, {unfinished}, verify: {whole.last()}; {outcome.last()}")
        command = ["train", "--resume", run]
    remove(run)


def hashes(run, step):
    folder = run / "checkpoints" / f"step-{step:08}"
    return [hashlib.sha256((folder / f"{name}.safetensors").read_bytes()).hexdigest() for name in ("model", "optimizer")]


def steady(bench):
    """A kill every 20 s for some minutes, then an end in order; a run of as many steps without any must be the same."""
    run, plain = bench.folder / "runs/disturbed", bench.folder / "runs/undisturbed"
    settings = [*ENDLESS, "--train.save_steps", "50", "--train.eval_steps", "500", "--train.eval_batches", "1",
                "--model.dropout", "0.1"]
    command, end = bench.train(run.name, *settings), time.time() + 60 * bench.options.minutes
    for number in itertools.count(1):
        before = saved_step(run)
        running = bench.start(command)
        time.sleep(20)
        running.until(lambda: saved_step(run) > before, bench.options.timeout)  # a slow machine gets nowhere in 20 s
        last = time.time() > end
        running.send(signal.SIGTERM if last else signal.SIGKILL)
        outcome = running.wait(bench.options.timeout)
        right = outcome.exit == (130 if last else -signal.SIGKILL) and saved_step(run) > before
        bench.record(STEADY, f"kill {number} after step {saved_step(run)}", "recovered" if right else "LOST",
                     outcome.last())
        command = ["train", "--resume", run]
        if last or not right:
            break
    steps = saved_step(run)
    bench.must(*bench.train(plain.name, *settings, "--train.stop_at", str(steps)), seconds=3600)
    same = hashes(run, steps) == hashes(plain, steps)
    bench.record(STEADY, f"{steps} steps with {number - 1} kills", "no effect" if same else "OTHER MEANING",
                 "the same weights and optimizer as without any" if same else "other weights than without any")
    remove(run), remove(plain)


def inject(bench):
    kills(bench)
    terms(bench)
    if not bench.options.quick:
        steady(bench)
