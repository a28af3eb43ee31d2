"""Full disks, small limits and places that cannot be written: a sentence, and nothing lost."""
import contextlib
import os
import resource
import shutil
import signal
import subprocess

from faults.harness import Outcome, remove, tree_hash
from faults.signals import saved_step

FAMILY = "full disk and limits"


@contextlib.contextmanager
def mounted(place, options):
    """A small file system of its own, or None where this user may not mount one."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place]
    done = bool(shutil.which("mount")) and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield place if done else None
    finally:
        if done:
            subprocess.run(["umount", place], capture_output=True)
        remove(place)


def refused(outcome, done=False):
    """The verdict on a call that cannot do its work: a sentence. `done`: that it succeeds is fine as well."""
    failure = outcome.failure()
    if failure:
        return failure
    if outcome.exit == 0:
        return "recovered" if done else "FALSE SUCCESS"
    return "refused"


def started_again(bench, command, run):
    """After the fault: resumed where there is a checkpoint, else started again. A verdict where neither works."""
    again = bench.run("train", "--resume", run) if saved_step(run) else bench.run(*command)
    if again.exit == 2 and "--overwrite" in again.text:
        again = bench.run(*command, "--overwrite")
    return again.failure() or ("LOST" if again.exit else None), again.last()


def limited_training(bench, case, command, run, limits=(), relieve=lambda: None):
    remove(run)
    outcome = bench.run(*command, limits=limits)
    verdict, detail = refused(outcome, done=True), outcome.last()
    if verdict == "refused":
        relieve()
        lost, why = started_again(bench, command, run)
        verdict, detail = (lost, why) if lost else (verdict, detail)
    bench.record(FAMILY, case, verdict, detail)


def limited_writing(bench, case, command, place, limits):
    remove(place)
    outcome = bench.run(*command, limits=limits)
    verdict = refused(outcome, done=True)
    if verdict == "refused":
        again = bench.run(*command)
        verdict = again.failure() or ("LOST" if again.exit else verdict)
    bench.record(FAMILY, case, verdict, outcome.last())
    remove(place)


def limited_resuming(bench, case, limits):
    run = bench.copy(bench.half_run(), "limited")
    outcome = bench.resume(run, limits=limits)
    verdict, detail = refused(outcome, done=True), outcome.last()
    if verdict == "refused":
        again = bench.resume(run)
        if again.exit or bench.finished(run) != bench.whole()[0]:
            verdict, detail = again.failure() or "LOST", again.last()
    bench.record(FAMILY, case, verdict, detail)


def file_size(bench):
    """RLIMIT_FSIZE: what a quota and a full disk look like to a program. Afterwards, without the limit, all is well."""
    folder = bench.folder
    for size in (0, 1000, 6000, 20000, 50000, 90000):
        limits, how = [(resource.RLIMIT_FSIZE, size)], f"with files of {size} bytes at most"
        limited_training(bench, f"train {how}", bench.train("limited"), folder / "runs/limited", limits)
        export = ["export", "--run", bench.half_run(), "--to", folder / "limited-hf"]
        limited_writing(bench, f"export {how}", export, folder / "limited-hf", limits)
        prepare = ["prepare", bench.recipe, "--output", folder / "limited-shards"]
        limited_writing(bench, f"prepare {how}", prepare, folder / "limited-shards", limits)
        limited_resuming(bench, f"resume {how}", limits)


def full_disk(bench):
    for size in (20, 60, 120, 200, 400):
        with mounted(bench.folder / "small", f"size={size}k") as disk:
            if not disk:
                return bench.record(FAMILY, "a small disk", "skipped", "cannot mount a tmpfs")
            command = ["train", bench.recipe, "--run.dir", disk, "--run.name", "a"]
            grow = ["mount", "-o", "remount,size=20m", disk]
            limited_training(bench, f"train on a disk of {size} KB", command, disk / "a",
                             relieve=lambda: subprocess.run(grow, capture_output=True))
    for name, *arguments in (("prepare", bench.recipe, "--output"), ("export", "--run", bench.half_run(), "--to")):
        with mounted(bench.folder / "small", "size=24k") as disk:
            outcome = bench.run(name, *arguments, disk / "out")
            left = [path.name for path in disk.iterdir()] if outcome.exit and name == "export" else []
            bench.record(FAMILY, f"{name} onto a disk of 24 KB", "LOST" if left else refused(outcome), outcome.last())


def output_lost(bench):
    """Standard output that cannot be written: never exit code 0."""
    run, model = bench.half_run(), ["--model", bench.half_run(), "--device", "cpu"]
    verbs = {
        "generate": ["generate", *model, "--prompt", "the", "--max-tokens", "4"],
        "generate --json": ["generate", *model, "--prompt", "the", "--max-tokens", "4", "--json"],
        "eval --json": ["eval", *model, "--json"],
        "config": ["config"],
        "config --markdown": ["config", "--markdown"],
        "data check --json": ["data", "check", bench.recipe, "--json"],
        "data show": ["data", "show", bench.recipe, "--rows", "2"],
        "data order": ["data", "order", bench.recipe],
        "inspect batch": ["inspect", "batch", bench.recipe],
        "inspect loss": ["inspect", "loss", *model, "--row", "1"],
        "chat": ["chat", *model, "--max-tokens", "4"],
        "tokenizer encode": ["tokenizer", "encode", "--tokenizer", run / "tokenizer"],
        "model show": ["model", "show", bench.recipe],
        "doctor": ["doctor"],
        "--version": ["--version"],
        "--help": ["--help"],
    }
    for name, arguments in verbs.items():
        with open("/dev/full", "wb") as full:
            done = subprocess.run([bench.program, *arguments], input=b"hello\n", stdout=full, stderr=subprocess.PIPE,
                                  env=bench.env, cwd=bench.folder, timeout=bench.options.timeout)
        outcome = Outcome(done.returncode, done.stderr, 0, 0)
        bench.record(FAMILY, f"{name} into /dev/full", refused(outcome), outcome.last())


def reader_gone(bench):
    """'train | head': the run must not die of it unsaved. Other verbs end, and not with exit code 0."""
    run, settings = bench.folder / "runs/piped", ["--train.steps", "3000", "--train.save_steps", "0"]
    remove(run)
    read, write = os.pipe()
    running = bench.start(bench.train("piped", *settings, "--train.logging_steps", "1"), stdout=write)
    os.close(write)
    os.read(read, 200)
    os.close(read)
    outcome = running.wait(bench.options.timeout)
    again = bench.run("train", "--resume", run, "--train.steps", "3002") if saved_step(run) else None
    verdict = "recovered" if again and again.exit == 0 else "LOST"
    bench.record(FAMILY, "train | head", verdict, f"exit {outcome.exit}, saved step {saved_step(run)}")
    remove(run)
    read, write = os.pipe()
    command = ["generate", "--model", bench.half_run(), "--device", "cpu", "--prompt", "the", "--n", "50"]
    running = bench.start(command, stdout=write)
    os.close(write), os.close(read)
    outcome = running.wait(bench.options.timeout)
    # Nobody is there to read a sentence, and dying of SIGPIPE is what every program does.
    verdict = "refused" if outcome.exit == -signal.SIGPIPE or (outcome.exit or 0) > 0 else refused(outcome)
    bench.record(FAMILY, "generate | head -c0", verdict, f"exit {outcome.exit}")


def small_limits(bench):
    generate = ["generate", "--model", bench.half_run(), "--device", "cpu", "--prompt", "the"]
    for what, name, unit, values in ((resource.RLIMIT_NOFILE, "open files", 1, (5, 6, 8, 12, 24)),
                                     (resource.RLIMIT_AS, "MB of address space", 1 << 20, (300, 400, 500, 700))):
        for value in values:
            limits = [(what, value * unit)]
            loads = bench.run("--version", limits=limits).exit == 0  # else libraries fail before the program begins
            for verb, arguments in (("train", bench.train("few")), ("generate", generate)):
                outcome = bench.run(*arguments, limits=limits)
                verdict = refused(outcome, done=True) if loads else "skipped"
                bench.record(FAMILY, f"{verb} with {value} {name}", verdict, outcome.last())
                remove(bench.folder / "runs/few")


def unwritable(bench):
    """Places that nobody can write or read, root neither: below a file, in a loop of links, names that are too long."""
    folder, run = bench.folder, bench.half_run()
    loop, flat, long = folder / "loop", folder / "flat", "n" * 300
    if not loop.is_symlink():
        loop.symlink_to(loop)
        flat.write_text("a file, not a folder")
    places = {"below a file": flat / "x", "in a loop of links": loop / "x", "under too long a name": folder / long}
    for what, place in places.items():
        for name, arguments in (
                ("run.dir", ["train", bench.recipe, "--run.dir", place, "--run.name", "a"]),
                ("data.cache", bench.train("nowhere", "--data.cache", place)),
                ("data.train", bench.train("nowhere", "--data.train", place)),
                ("tokenizer.path", bench.train("nowhere", "--tokenizer.path", place)),
                ("train.init_from", bench.train("nowhere", "--train.init_from", place)),
                ("--resume", ["train", "--resume", place]),
                ("a recipe", ["train", place]),
                ("export --to", ["export", "--run", run, "--to", place]),
                ("prepare --output", ["prepare", bench.recipe, "--output", place]),
                ("generate --model", ["generate", "--model", place, "--prompt", "x"]),
                ("generate --prompts", ["generate", "--model", run, "--prompts", place]),
                ("eval --input", ["eval", "--model", run, "--input", place])):
            outcome = bench.run(*arguments)
            bench.record(FAMILY, f"{name} {what}", refused(outcome), outcome.last())
            remove(folder / "runs/nowhere")
    outcome = bench.run("train", bench.recipe, "--run.dir", folder / "runs", "--run.name", long)
    bench.record(FAMILY, "run.name that is too long", refused(outcome), outcome.last())
    nowhere = dict(bench.env, TMPDIR=str(folder / "no/such/folder"))
    for name, arguments in (("data show", ["data", "show", bench.recipe]), ("train", bench.train("nowhere")),
                            ("data order", ["data", "order", bench.recipe])):
        outcome = bench.run(*arguments, "--data.tokenize", "live", env=nowhere)
        bench.record(FAMILY, f"{name} where TMPDIR is missing", refused(outcome, done=True), outcome.last())
        remove(folder / "runs/nowhere")


def read_only(bench):
    with mounted(bench.folder / "frozen", "size=4m") as disk:
        if not disk:
            return bench.record(FAMILY, "a read-only disk", "skipped", "cannot mount a tmpfs")
        run = disk / "run"
        shutil.copytree(bench.half_run(), run)
        subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True)
        for name, arguments, done in (
                ("train", ["train", bench.recipe, "--run.dir", disk, "--run.name", "a"], False),
                ("--resume", ["train", "--resume", run], False),
                ("generate", ["generate", "--model", run, "--device", "cpu", "--prompt", "the"], True),
                ("eval", ["eval", "--model", run, "--device", "cpu"], True),
                ("export", ["export", "--run", run, "--to", disk / "hf"], False),
                ("prepare", ["prepare", bench.recipe, "--output", disk / "s"], False)):
            outcome = bench.run(*arguments)
            bench.record(FAMILY, f"{name} on a read-only disk", refused(outcome, done), outcome.last())


def inject(bench):
    parts = [file_size, full_disk, small_limits, unwritable, read_only, output_lost, reader_gone]
    for part in parts[-2:] if bench.options.quick else parts:
        part(bench)
