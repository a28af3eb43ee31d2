"""The newest checkpoint harmed, or its disk full while it is saved: the one before is taken, and the file is named."""
import concurrent.futures
import ctypes
import os
import signal

from faults.harness import remove
from faults.limits import mounted
from faults.signals import HEAVY, saved_step

FAMILY = "harmed checkpoints"
FULL = "disk full while saving"
FAMILIES = [FAMILY, FULL]
NAMES = ["model.safetensors", "optimizer.safetensors", "state.json"]
POINTS = 20
LARGE = 1 << 30
FAILED = b"Training goes on; the next save will be tried"


def places(bench, run):
    """Files and offsets, a third of them each: the first and last bytes, and others all over the file."""
    count = bench.options.offsets
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        size = (run / "checkpoints/step-00000010" / name).stat().st_size
        nth, rng = number // len(NAMES), bench.random(FAMILY, number)
        at = [0, size - 1, 7, 8][nth] if nth < 4 else rng.randrange(size)
        yield number, name, at, rng.choice(["flip", "flip", "cut"]), rng.randrange(8)


def harmed(bench, number, name, at, kind, bit):
    run = bench.copy(bench.half_run(), f"harmed-{number}")
    path = run / "checkpoints/step-00000010" / name
    data = bytearray(path.read_bytes())
    if kind == "cut":
        del data[at:]
    else:
        data[at] ^= 1 << bit
    path.write_bytes(data)
    outcome = bench.run("train", "--resume", run, "--train.stop_at", "6")
    verdict = outcome.failure()
    if not verdict:
        said = [line for line in outcome.text.splitlines() if "step-00000010" in line and name in line]
        before = "Resuming after step 5." in outcome.text and outcome.exit == 0
        verdict = "told" if said and before else "OTHER MEANING" if outcome.exit == 0 else "LOST"
    bench.record(FAMILY, f"{name}, {kind} at byte {at}", verdict, outcome.last())
    remove(run)


def resize(disk, size):
    """Makes a tmpfs as small as it can be, or as large as is said. Within microseconds: a save is quick, too."""
    remount = 32
    for spare in range(0, 1 << 24, 1 << 16):
        state = os.statvfs(disk)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        options = b"size=%d" % (size or used + spare)
        if ctypes.CDLL(None).mount(b"tmpfs", os.fsencode(disk), b"tmpfs", remount, options) == 0:
            return


def bytes_in(folder):
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    except OSError:
        return 0


def fill_up(running, run, disk, share):
    """Waits for a save and takes the room away when so much of it is written. Whether that was in time."""
    checkpoints, whole = run / "checkpoints", bytes_in(run / "checkpoints" / f"step-{saved_step(run):08}")
    for _ in range(50):
        failures, newest = running.output().count(FAILED), saved_step(run)
        running.until(lambda: any(checkpoints.glob("*.partial")), 60)
        for partial in checkpoints.glob("*.partial"):
            while partial.exists() and bytes_in(partial) < whole * share:
                pass
            resize(disk, None)
        running.until(lambda: running.output().count(FAILED) > failures or saved_step(run) > newest, 60)
        if running.output().count(FAILED) > failures and b"No space left on device" in running.output():
            return True
        resize(disk, LARGE)
    return False


def full(bench, point):
    """The disk is full when a part of a save is written: nothing is lost, and the next save that has room is made."""
    case = f"after {point}/{POINTS} of a save"
    with mounted(bench.folder / "filled", f"size={LARGE}") as disk:
        if not disk:
            return bench.record(FULL, case, "skipped", "cannot mount a tmpfs")
        run = disk / "a"
        running = bench.start(["train", bench.recipe, "--run.dir", disk, "--run.name", "a", *HEAVY, "--model.layers", "2",
                               "--train.steps", "100000", "--train.save_steps", "3", "--train.keep_checkpoints", "1"])
        running.until(lambda: saved_step(run) >= 3, bench.options.timeout)
        if not fill_up(running, run, disk, point / POINTS):
            return bench.record(FULL, case, "skipped", f"not in time; {running.wait(0).last()}")
        alive, older = running.alive(), saved_step(run)
        whole = bench.run("checkpoint", "verify", run)
        resize(disk, LARGE)
        again = running.until(lambda: saved_step(run) > older, bench.options.timeout)
        running.send(signal.SIGTERM)
        outcome = running.wait(bench.options.timeout)
        after = bench.run("checkpoint", "verify", run)
        right = alive and whole.exit == 0 and again and outcome.exit == 130 and after.exit == 0
        bench.record(FULL, case, outcome.failure() or ("recovered" if right else "LOST"),
                     f"step {older} was whole: {whole.last()}; then {saved_step(run)}: {after.last()}; {outcome.last()}")


def inject(bench):
    bench.half_run()
    with concurrent.futures.ThreadPoolExecutor(bench.options.jobs) as pool:
        for one in [pool.submit(harmed, bench, *place) for place in places(bench, bench.half_run())]:
            one.result()
    for point in range(0, POINTS, 10 if bench.options.quick else 1):
        full(bench, point)
