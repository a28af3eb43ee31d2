#!/usr/bin/env python3
"""What watching a run costs on a CPU: one training with all monitoring at its defaults and one with none run in turns.

  bench/watching_cpu.py [--program build/tightloop] [--seconds 300] [--slice 4] [--threads 2] [RECIPE]

Both processes live all the time; SIGSTOP and SIGCONT let one of them run for a slice, then the other, in random order,
so that what else the machine does hits both alike. Steps are those of metrics.jsonl, whose times are turned into
time in which that process ran. Prints steps per second, CPU time per step (/proc/PID/stat) and, of the pairs of slices,
the mean ratio with its standard error. The first pairs are left out.
"""
import argparse, json, math, os, pathlib, random, signal, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = "--train.steps 1000000 --train.eval_steps 0 --train.save_steps 0 --train.save_minutes 0".split()
NONE = ("--log.reduced_logging true --log.tensorboard false --log.detail_steps 0 --log.dataset_metrics_steps 0 "
        "--log.memory_steps 0").split()  # as in bench/on_gpu.sh, watching
WARM_STEPS, DROPPED_PAIRS = 50, 3
TICK = os.sysconf("SC_CLK_TCK")


class Training:
    def __init__(self, name, program, recipe, settings, folder):
        self.name, self.slices, self.run = name, [], folder / name
        command = [program, "train", recipe, *COMMON, *settings, "--run.dir", str(folder), "--run.name", name]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, which):
        if self.process.poll() is not None:
            sys.exit(f"watching_cpu.py: the training '{self.name}' has ended: see {self.run}/log.txt")
        self.process.send_signal(which)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def lines(self):
        """(time, step) of each line of metrics."""
        file = self.run / "metrics.jsonl"
        if not file.exists():
            return []
        found = []
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n") and "training/loss" in line:
                values = json.loads(line)
                found.append((values["time"], values["global_step"]))
        return found

    def run_for(self, seconds):
        cpu, began = self.cpu_seconds(), time.time()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        self.slices.append((began, time.time(), self.cpu_seconds() - cpu))

    def steps_by_slice(self):
        """Steps of each slice, with fractions: between two lines they are taken to be even in the time that it ran."""
        starts = [0]
        for began, ended, _ in self.slices:
            starts.append(starts[-1] + ended - began)

        def active(moment):
            for k, (began, ended, _) in enumerate(self.slices):
                if moment <= ended:
                    return starts[k] + max(0, moment - began)
            return starts[-1]

        points = [(active(moment), step) for moment, step in self.lines() if moment >= self.slices[0][0]]

        def step_at(when):
            for (t0, s0), (t1, s1) in zip(points, points[1:]):
                if t0 <= when <= t1 and t1 > t0:
                    return s0 + (s1 - s0) * (when - t0) / (t1 - t0)
            return None

        bounds = [step_at(when) for when in starts]
        return [None if a is None or b is None else b - a for a, b in zip(bounds, bounds[1:])]


def mean_and_error(values):
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="configs/quickstart.yaml")
    parser.add_argument("--program", default=str(ROOT / "build/tightloop"))
    parser.add_argument("--seconds", type=float, default=300, help="of each, in which it runs")
    parser.add_argument("--slice", type=float, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        threads = ["--train.threads", str(options.threads)]
        sides = [Training(name, options.program, options.recipe, threads + settings, pathlib.Path(folder))
                 for name, settings in (("none", NONE), ("all", []))]
        try:
            for side in sides:  # one after the other: set-up and the first steps
                for other in sides:
                    other.signal(signal.SIGCONT if other is side else signal.SIGSTOP)
                while not any(step >= WARM_STEPS for _, step in side.lines()):
                    side.signal(signal.SIGCONT)
                    time.sleep(0.2)
                side.signal(signal.SIGSTOP)
            pairs = DROPPED_PAIRS + math.ceil(options.seconds / options.slice)
            order = random.Random(1)
            for _ in range(pairs):
                for side in order.sample(sides, 2):
                    side.run_for(options.slice)
            for side in sides:  # the line that covers the end of its last slice
                side.signal(signal.SIGCONT)
                time.sleep(3)
                side.signal(signal.SIGSTOP)
        finally:
            for side in sides:
                side.process.kill()
                side.process.wait()
        report(sides, options)


def report(sides, options):
    steps = [side.steps_by_slice() for side in sides]
    kept = [k for k in range(DROPPED_PAIRS, len(steps[0])) if None not in (steps[0][k], steps[1][k])]
    seconds, cpu = [], []
    for side, counts in zip(sides, steps):
        total = sum(counts[k] for k in kept)
        ran = sum(side.slices[k][1] - side.slices[k][0] for k in kept)
        used = sum(side.slices[k][2] for k in kept)
        seconds.append([(side.slices[k][1] - side.slices[k][0]) / counts[k] for k in kept])
        cpu.append([side.slices[k][2] / counts[k] for k in kept])
        print(f"{side.name:>4}: {total:.0f} steps in {ran:.0f} s: {total / ran:.3f} steps/s, {1000 * ran / total:.2f} ms a step, "
              f"{1000 * used / total:.2f} ms of CPU a step")
    print(f"{len(kept)} pairs of slices of {options.slice:g} s, {options.threads} threads, load average {os.getloadavg()[0]:.1f}")
    for what, values in (("time", seconds), ("CPU time", cpu)):
        logs = [math.log(b / a) for a, b in zip(*values)]
        mean, error = mean_and_error(logs)
        print(f"{what} a step, all / none: {math.exp(mean):.4f} +- {error:.4f}")


main()
