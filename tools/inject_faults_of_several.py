#!/usr/bin/env python3
"""Injects faults into one of four processes that train together, and judges what comes of it (docs/faults.md).

All end within 10 s of the fault with the same sentence, which names the rank and its host, and with the same exit code;
the newest checkpoint is whole, and a run goes on from it. Needs Python 3 and root (for host names and small disks).

usage: tools/inject_faults_of_several.py [--only KIND] [--count N] [--seed N] [--quick]
"""
import argparse
import collections
import os
import pathlib
import re
import resource
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
from faults.checkpoints import resize  # noqa: E402
from faults.harness import FORBIDDEN, Bench, remove, text  # noqa: E402
from faults.limits import mounted  # noqa: E402
from faults.several import SETTINGS, WORLD, Job, address_space, host_of, tensor_bytes, write_nan  # noqa: E402
from faults.signals import last_logged, saved_step  # noqa: E402

START = 120  # seconds in which four processes begin to train, on a machine that is busy with other work
MOMENTS = ["start-up", "step", "save", "evaluation"]
LARGE = 1 << 28
SILENT = "does not answer any more"
# One heap, and larger pieces mapped one by one: freed memory goes back to the system at once.
TIGHT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TOP_PAD_": "0", "MALLOC_TRIM_THRESHOLD_": "0"}
KNOWN = 200  # steps of the run that others are compared with


def wait_for(moment, job, run, rng):
    """Whether it came. All processes have met by then: of one that never comes, the others cannot know."""
    checkpoints = run / "checkpoints"
    if moment == "start-up":
        came = job.until((run / "log.txt").exists, START)
    elif moment == "step":
        came = job.until(lambda: last_logged(run) >= 5, START)
    elif moment == "save":
        came = job.until(lambda: saved_step(run) >= 10, START)
        return came and job.until(lambda: any(checkpoints.glob("*.partial")), START)
    else:  # it begins when the save before it is done
        came = job.until(lambda: saved_step(run) >= 20 and saved_step(run) % 20 == 0, START)
    time.sleep(rng.random() * (0.2 if moment in ("start-up", "evaluation") else 1))
    return came and job.alive()


def goes_on(bench, run, command):
    """A verdict where the newest checkpoint is not whole or the run does not go on, in one process."""
    step = saved_step(run)
    if step:
        verified = bench.run("checkpoint", "verify", run)
        if verified.exit:
            return "LOST", verified.last()
        again = bench.run("train", "--resume", run, "--train.stop_at", str(step + 2), "--train.eval_steps", "0")
    else:
        again = bench.run(*command, "--train.stop_at", "2", "--train.eval_steps", "0")
        if again.exit == 2 and "--overwrite" in again.text:
            again = bench.run(*command, "--train.stop_at", "2", "--train.eval_steps", "0", "--overwrite")
    return (again.failure() or "LOST", again.last()) if again.exit else None


def content(checkpoint):
    return {name: (checkpoint / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}


def undisturbed(bench):
    """What the first steps of the same four processes come to when nothing happens to them, by their number."""
    def build():
        run = bench.folder / "runs/undisturbed"
        job = Job(bench, bench.train(run.name, *SETTINGS, "--train.keep_checkpoints", "0", "--train.stop_at", str(KNOWN)))
        if not job.wait(job.ranks, 10 * START) or job.poll() != [0] * WORLD:
            sys.exit(f"inject_faults_of_several.py: four processes do not train:\n{job.ranks[0].text()}")
        return {int(path.name[5:]): content(path) for path in (run / "checkpoints").glob("step-*")}
    return bench.make("undisturbed", build)


def half_updated(bench, run):
    """The newest checkpoint, where it holds other bits than those of an undisturbed run."""
    step = saved_step(run)
    known = undisturbed(bench).get(step)
    return step if known and content(run / "checkpoints" / f"step-{step:08}") != known else 0


def conclude(bench, kind, case, verdict, run, command, compared=True):
    lost = None
    if verdict[0] not in FORBIDDEN:
        other = half_updated(bench, run) if compared else 0
        lost = ("OTHER MEANING", f"step {other} is not as it is undisturbed") if other else goes_on(bench, run, command)
    bench.record(kind, case, *(lost or verdict))
    remove(run)


def begin(bench, kind, number, own_env=None):
    """A training under way at its moment: (job, run, command, random numbers, case), or None."""
    rng = bench.random(kind, number)
    moment = MOMENTS[number % len(MOMENTS)]
    run = bench.folder / "runs" / f"{kind}-{number}"
    command = bench.train(run.name, *SETTINGS)
    job = Job(bench, command, own_env=own_env)
    if wait_for(moment, job, run, rng):
        return job, run, command, rng, moment
    detail = "; ".join(f"rank {rank.number}: {rank.poll()} {rank.last_words()[:200]}" for rank in job.ranks)
    bench.record(kind, f"{number}: {moment} never came", "LOST", detail)
    job.close()
    return None


def signalled(bench, kind, number, name):
    """A rank that is killed or stopped: the others say so. A stopped one that is let go afterwards ends as well."""
    started = begin(bench, kind, number)
    if not started:
        return
    job, run, command, rng, moment = started
    victim = rng.randrange(WORLD)
    since = time.time()
    job.ranks[victim].send(getattr(signal, name))
    verdict = job.judge(job.others(victim), since, 1, [host_of(victim), SILENT])
    if name == "SIGSTOP" and verdict[0] not in FORBIDDEN:
        job.ranks[victim].send(signal.SIGCONT)
        if not job.wait([job.ranks[victim]], 20):
            verdict = "HANG", "the stopped one, once it was let go"
    job.close()
    conclude(bench, kind, f"{number}: {name} of rank {victim}, {moment}", verdict, run, command)


def killed(bench, kind, number):
    signalled(bench, kind, number, "SIGKILL")


def stopped(bench, kind, number):
    signalled(bench, kind, number, "SIGSTOP")


def out_of_memory(bench, kind, number):
    """No more address space for a rank than it has. Its tensors are mapped one by one, so that the next one fails."""
    victim = bench.random(kind, number, "victim").randrange(WORLD)
    started = begin(bench, kind, number, {victim: TIGHT})
    if not started:
        return
    job, run, command, _, moment = started
    since, process = time.time(), job.ranks[victim].process.pid
    space = address_space(process)
    resource.prlimit(process, resource.RLIMIT_AS, (space, space))
    # 3 where it was a data file or a folder that could not be read for want of memory.
    verdict = job.judge(job.ranks, since, {5, 3}, [host_of(victim), "memory"])
    job.close()
    conclude(bench, kind, f"{number}: no memory for rank {victim}, {moment}", verdict, run, command)


def full_disk(bench, kind, number):
    """The run goes on without saves, and in half of the cases has its room back. Else the last save ends all of it."""
    rng, relieved = bench.random(kind, number), number % 2 == 0
    case = f"{number}: full {'for a while' if relieved else 'until the end'}"
    with mounted(bench.folder / f"disk-{number}", f"size={LARGE}") as disk:
        if not disk:
            return bench.record(kind, case, "skipped", "cannot mount a tmpfs")
        run = disk / "a"
        command = ["train", bench.recipe, "--run.dir", disk, "--run.name", "a", *SETTINGS]
        job = Job(bench, command)
        moment = ["step", "save"][number // 2 % 2]
        if not wait_for(moment, job, run, rng) or not job.until(lambda: saved_step(run) >= 10, START):
            detail = "; ".join(rank.last_words()[:200] for rank in job.ranks)
            job.close()
            return bench.record(kind, f"{case}: {moment} never came", "LOST", detail)
        resize(disk, None)
        failed = job.until(lambda: "Training goes on; the next save will be tried" in job.ranks[0].text(), START)
        older = saved_step(run)
        verdict = None if failed else ("LOST", "no save failed: " + job.ranks[0].text()[-300:])
        if not verdict and relieved:
            resize(disk, LARGE)
            if not job.until(lambda: saved_step(run) > older, START):
                verdict = "LOST", "nothing was saved when there was room again"
        since = time.time()
        job.signal(signal.SIGTERM)
        if not verdict and relieved:
            job.wait(job.ranks, 10)
            codes = job.poll()
            verdict = ("recovered", "") if codes == [130] * WORLD else ("LOST", f"exit codes {codes}")
        elif not verdict:
            verdict = job.judge(job.ranks, since, 4, [host_of(0), f"go on from step {older}"])
            resize(disk, LARGE)
        job.close()
        conclude(bench, kind, f"{case}, {moment}", verdict, run, command)


def not_a_number(bench, kind, number):
    """NaN in a rank's memory, among its weights. They must not move meanwhile, to be found there: a rate of nearly 0."""
    rng = bench.random(kind, number)
    victim = rng.randrange(WORLD)
    run = bench.copy(bench.half_run(), f"nan-{number}")
    name, pattern = tensor_bytes(run / "checkpoints/step-00000010")
    command = ["train", "--resume", run, *SETTINGS, "--train.stop_at", "0", "--train.lr", "1e-14",
               "--train.weight_decay", "0", "--train.max_skips", "10"]
    job = Job(bench, command)
    moment = ["step", "save", "evaluation"][number % 3]
    came = {"step": lambda: last_logged(run) >= 12, "save": lambda: any((run / "checkpoints").glob("*.partial")),
            "evaluation": lambda: saved_step(run) >= 20}[moment]
    if not job.until(came, START):
        job.close()
        return bench.record(kind, f"{number}: {moment} never came", "LOST", job.ranks[0].text()[-300:])
    process = job.ranks[victim].process
    process.send_signal(signal.SIGSTOP)
    count = write_nan(process.pid, pattern)
    since = time.time()
    process.send_signal(signal.SIGCONT)
    if count == 0:
        job.close()
        return bench.record(kind, f"{number}: {name}", "skipped", "the weights were not found in memory")
    verdict = job.judge(job.ranks, since, 1, ["not finite|nan|not a number"])
    # Rank 0 evaluates for all, and what it finds counts.
    if verdict[0] == "refused" and "held-out" not in verdict[1] and f"Rank {victim}: " not in "".join(rank.text() for rank in job.ranks):
        verdict = "OTHER WORDS", f"rank {victim} is not named: {verdict[1]}"
    job.close()
    conclude(bench, kind, f"{number}: NaN in {name} of rank {victim}, {count} times, {moment}", verdict, run, command,
             compared=False)


def other_start(bench, kind, number):
    """One was started with another setting, program or data file, or with one that is wrong."""
    rng = bench.random(kind, number)
    victim, run = rng.randrange(WORLD), bench.folder / "runs" / f"other-{number}"
    command = bench.train(run.name, *SETTINGS)
    program, own, code, names = None, command, 2, [host_of(victim)]
    what = ["lr", "program", "data", "layers", "file", "seed", "misspelled", "data", "missing", "batch"][number % 10]
    changes = {"lr": ["--train.lr", "0.0007"], "layers": ["--model.layers", "2"], "seed": ["--train.seed", "7"],
               "batch": ["--train.micro_batch", "3"], "misspelled": ["--train.lrr", "1"],
               "missing": ["--data.train", "no-such-file.txt"]}
    if what in changes:
        own = command + changes[what]
        # Which value comes first depends on who differs: the others are compared with rank 0.
        names += {"lr": ["train.lr", " 0.0007", " 0.001"], "layers": ["model.layers", " 2"], "seed": ["train.seed", " 7"],
                  "batch": ["train.micro_batch", " 3"], "misspelled": ["lrr"], "missing": ["no-such-file"]}[what]
        code = 3 if what == "missing" else 2
    elif what == "program":
        program = bench.folder / "other-program"
        version = bench.run("--version").text.split()[1].encode()
        data = bench.program.read_bytes()
        program.write_bytes(data.replace(version + b"\0", version[:-1] + b"9\0"))
        program.chmod(0o755)
        names += ["version", f" {version[:-1].decode()}9", " " + version.decode()]
    else:  # as many bytes, or more of them
        changed = bench.folder / f"changed-{number}.txt"
        content = bench.data.read_text()
        changed.write_text(content.replace("cat", "cow", 1) if what == "data" else content + text("more", 3))
        own = command + ["--data.train", changed]
        code, names = 3, names + ["data file 1", "hash"]
    job = Job(bench, command, own_arguments={victim: own}, own_program={victim: program} if program else None)
    verdict = job.judge(job.ranks, time.time(), code, names)
    if run.exists() and verdict[0] not in FORBIDDEN:
        verdict = "LOST", "a run's folder was made for it"
    job.close()
    conclude(bench, kind, f"{number}: {what}, rank {victim}", verdict, run, command)


def slow(bench, kind, number):
    """Three times slower, by stopping it for two thirds of every moment: named in the log, and training goes on."""
    rng = bench.random(kind, number)
    victim, run = rng.randrange(WORLD), bench.folder / "runs" / f"slow-{number}"
    command = bench.train(run.name, *SETTINGS, "--train.eval_steps", "0", "--model.width", "64")
    job = Job(bench, command)
    job.until(lambda: last_logged(run) >= 5, START)
    process, end = job.ranks[victim].process, time.time() + 60
    named, said = host_of(victim) + " takes", ""
    while time.time() < end and job.alive():
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.04)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
        said = [line for line in job.ranks[0].text().splitlines() if "a straggler: " in line]
        if said:
            break
    right = bool(said) and all(re.search(named, line) for line in said) and job.alive()
    job.signal(signal.SIGTERM)
    job.wait(job.ranks, 20)
    codes = job.poll()
    job.close()
    verdict = "told" if right and codes == [130] * WORLD else "LOST"
    conclude(bench, kind, f"{number}: rank {victim}", (verdict, f"exit codes {codes}; {said[:1]}"), run, command,
             compared=False)


KINDS = {"killed": killed, "stopped": stopped, "out of memory": out_of_memory, "full disk": full_disk,
         "NaN": not_a_number, "other start": other_start, "slow": slow}


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--program", type=pathlib.Path, default=root / "build/tightloop",
                        help="what is tested (default: build/tightloop)")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind; may be given several times")
    parser.add_argument("--count", type=int, default=10, help="faults of each kind (default 10; 3 slow ranks)")
    parser.add_argument("--seed", type=int, default=1, help="another seed takes other ranks and moments")
    parser.add_argument("--quick", action="store_true", help="one of each but slow ranks, in about a minute")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a call of one process hangs")
    parser.add_argument("--verbose", action="store_true", help="show what was as it should be too")
    chosen = parser.parse_args()
    if not os.access(chosen.program, os.X_OK):
        sys.exit(f"inject_faults_of_several.py: there is no program '{chosen.program}'. Build it (tools/build release "
                 "tightloop), or name one with --program.")
    if not shutil.which("mount"):
        sys.exit("inject_faults_of_several.py: 'mount' is not there.")
    chosen.program = chosen.program.resolve()
    return chosen


def count_of(kind, chosen):
    if chosen.quick:
        return 0 if kind == "slow" else 1
    return min(chosen.count, 3) if kind == "slow" else chosen.count


def main():
    chosen = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that mounts and processes go away
    with tempfile.TemporaryDirectory(prefix="tightloop-faults-", ignore_cleanup_errors=True) as folder:
        bench = Bench(chosen.program, pathlib.Path(folder), chosen)
        for kind in chosen.only or KINDS:
            began = time.time()
            try:
                for number in range(count_of(kind, chosen)):
                    KINDS[kind](bench, kind, number)
            finally:
                bench.close()
            count = bench.counts.get(kind, collections.Counter())
            print(f"{kind}: {sum(count.values())} faults in {time.time() - began:.0f} s: "
                  + ", ".join(f"{number} {verdict}" for verdict, number in count.most_common()), flush=True)
    total = sum(sum(count.values()) for count in bench.counts.values())
    print(f"\n{total} faults, {len(bench.found)} not as they must be")
    sys.exit(1 if bench.found else 0)


main()
