"""What every family of faults shares: the program under test, small things to damage, and the list of verdicts."""
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

# What may come of a fault, and what must not.
ALLOWED = {
    "refused": "ended with a sentence that says what is wrong",
    "no effect": "the result is the same, bit for bit",
    "recovered": "the run, or the command, went on or was started again, and nothing was lost",
    "told": "went on with another result, and said which file or setting is the cause",
    "no checksum": "other values in a format that has no checksum (data, Hugging Face files): nobody can notice",
    "skipped": "cannot be tried on this machine",
}
FORBIDDEN = {
    "OTHER MEANING": "accepted in silence, with another result",
    "CRASH": "ended by a signal or an exception that nobody caught",
    "HANG": "still at work when its time was up",
    "LOST": "work that was done, or the way to go on, is gone",
    "NO SENTENCE": "failed, and its message is none or a library's own text",
    "FALSE SUCCESS": "exit code 0, and the work was not done",
    "OTHER WORDS": "processes that train together ended with other sentences, or with other exit codes",
}
CRASHED = re.compile(r"terminate called|Segmentation|core dumped|Aborted|Sanitizer|runtime error:|pure virtual")
# Texts of libraries that reached the user as they are.
RAW = re.compile(r"filesystem error|std::|basic_string|what\(\)|json\.exception|Exception raised from|yaml-cpp:|"
                 r"iostream error|bad_alloc|vector::|map::at|INTERNAL ASSERT|c10::|stoi|stod|bad optional")
FATAL = {-getattr(signal, f"SIG{name}") for name in ("SEGV", "ABRT", "BUS", "FPE", "ILL", "XFSZ", "PIPE")}

RECIPE = """\
data: {{source: text, train: ["{data}"], documents: blank_line, seq_len: 32, holdout: 0.1, num_workers: 1,
       tokenizer_threads: 1}}
tokenizer: {{vocab_size: 300, special_tokens: ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}}
model: {{layers: 1, width: 32, heads: 2, ffn: 64}}
train: {{device: cpu, precision: fp32, threads: 1, steps: 20, micro_batch: 4, lr: 0.01, warmup_steps: 2,
        logging_steps: 5, save_steps: 5, eval_steps: 10, eval_batches: 4, loss_extract_interval: 5}}
"""
WORDS = "the a one two cat dog tree house river stone light sat ran saw fell grew under over near big old new".split()


def text(seed, documents):
    """Sentences of few words, the same for the same seed: a model learns something of it in a few steps."""
    rng = random.Random(f"text/{seed}")
    sentences = (" ".join(rng.choices(WORDS, k=rng.randint(8, 30))) for _ in range(documents))
    return "\n\n".join(f"{sentence} {rng.randrange(1000)}." for sentence in sentences) + "\n"


class Outcome:
    """How a call of the program ended: `exit` is None where it was stopped after its time."""

    def __init__(self, exit, out, seconds, memory):
        self.exit, self.out, self.seconds, self.memory = exit, out, seconds, memory
        self.text = out.decode("utf-8", "replace")

    def failure(self):
        """A verdict where it crashed, hung or failed without a sentence; else None."""
        if self.exit is None:
            return "HANG"
        if self.exit in FATAL or self.exit in (134, 139) or CRASHED.search(self.text):
            return "CRASH"
        if self.exit in (0, 130):
            return None
        if RAW.search(re.sub(r"damaged[^:]*: .*", "", self.text)) or len(self.text.strip()) < 10:
            return "NO SENTENCE"
        return None

    def last(self):
        lines = [line for line in self.text.strip().splitlines() if line.strip()]
        return f"exit {self.exit}: {lines[-1][:200] if lines else '(no output)'}"


class Running:
    """The program at work. Its output goes to a file, so that it never waits for us."""

    def __init__(self, process, log, started):
        self.process, self.log, self.started = process, log, started

    def alive(self):
        return self.process.poll() is None

    def output(self):
        return self.log.read_bytes() if self.log else b""

    def send(self, number):
        if self.alive():
            self.process.send_signal(number)

    def wait(self, seconds):
        """The outcome; after so many seconds it is ended by force."""
        try:
            exit = self.process.wait(max(0.01, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            exit = None
        return Outcome(exit, self.output(), time.time() - self.started, 0)

    def until(self, condition, seconds):
        """Whether the condition came true while it was at work."""
        end = time.time() + seconds
        while time.time() < end:
            if condition():
                return True
            if not self.alive():
                return condition()
            time.sleep(0.005)
        return False


class Bench:
    """The program, a folder to work in, and what was found."""

    def __init__(self, program, folder, options):
        self.program, self.folder, self.options = program, folder, options
        self.counts = collections.defaultdict(collections.Counter)
        self.found, self.lock, self.number = [], threading.Lock(), 0
        self.data, self.recipe = folder / "data.txt", folder / "tiny.yaml"
        self.data.write_text(text(options.seed, 400))
        self.recipe.write_text(RECIPE.format(data=self.data))
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", CUDA_VISIBLE_DEVICES="",
                        NO_COLOR="1")
        self.made, self.started = {}, []

    # ---- verdicts

    def record(self, family, case, verdict, detail=""):
        with self.lock:
            self.counts[family][verdict] += 1
            if verdict in FORBIDDEN:
                self.found.append((family, case, verdict, detail))
                print(f"  {verdict}: {family}: {case}: {detail}", flush=True)
            elif self.options.verbose:
                print(f"  {verdict}: {family}: {case}: {detail}", flush=True)

    def random(self, *names):
        return random.Random("/".join(str(name) for name in (self.options.seed, *names)))

    # ---- the program

    def start(self, arguments, limits=(), stdin=subprocess.DEVNULL, stdout=None, env=None):
        """Starts it; `limits` are pairs for setrlimit. Without `stdout` its output goes to a file."""
        def prepare():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "PIPE", "XFSZ"):
                signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)  # Python, nohup and shells ignore some
            for what, value in limits:
                resource.setrlimit(what, (value, value))
        log = None
        if stdout is None:
            with self.lock:
                self.number += 1
                log = self.folder / f"output-{self.number}.txt"
            stdout = open(log, "wb")
        process = subprocess.Popen([self.program, *map(os.fsencode, arguments)], cwd=self.folder, stdin=stdin,
                                   stdout=stdout, stderr=subprocess.STDOUT, env=env or self.env, preexec_fn=prepare)
        self.started.append(process)
        return Running(process, log, time.time())

    def close(self):
        """Leaves nothing running behind."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run(self, *arguments, seconds=None, limits=(), input=None, stdout=None, env=None):
        """Runs it to its end, with all of its output and its peak of memory."""
        seconds = seconds or self.options.timeout
        run = self.start(arguments, limits, subprocess.PIPE if input is not None else subprocess.DEVNULL,
                         subprocess.PIPE if stdout is None else stdout, env)
        peak = [0]

        def watch():
            while run.alive():
                try:
                    status = pathlib.Path(f"/proc/{run.process.pid}/status").read_text()
                    peak[0] = max(peak[0], int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024)
                except (OSError, TypeError):
                    pass
                time.sleep(0.1)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            out, _ = run.process.communicate(input, seconds)
            exit = run.process.returncode
        except subprocess.TimeoutExpired:
            run.process.kill()
            out, _ = run.process.communicate()
            exit = None
        watcher.join()
        return Outcome(exit, out or b"", time.time() - run.started, peak[0])

    def must(self, *arguments, **how):
        """A call that only prepares a fault: without it nothing can be said."""
        outcome = self.run(*arguments, **how)
        if outcome.exit != 0:
            call = " ".join(map(str, arguments))
            sys.exit(f"inject_faults.py: 'tightloop {call}' failed before any fault:\n{outcome.text}")
        return outcome

    # ---- things to damage, each made once

    def make(self, name, build):
        if name not in self.made:
            self.made[name] = build()
        return self.made[name]

    def train(self, name, *settings, recipe=None):
        return ["train", recipe or self.recipe, "--run.dir", self.folder / "runs", "--run.name", name, *settings]

    def half_run(self):
        """A run of 20 steps that was stopped after 10, with checkpoints of step 5 and 10."""
        def build():
            self.must(*self.train("half", "--train.stop_at", "10"))
            return self.folder / "runs/half"
        return self.make("half", build)

    def finished(self, run):
        """What a run came to: its last step, the hash of its weights."""
        steps = sorted(path for path in (run / "checkpoints").glob("step-*") if path.suffix != ".partial")
        if not steps:
            return None
        weights = steps[-1] / "model.safetensors"
        return steps[-1].name, hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else None

    def whole(self):
        """What the run of half_run() comes to when nothing happens to it, and what resuming it prints."""
        def build():
            run = self.copy(self.half_run(), "whole")
            outcome = self.resume(run)
            if outcome.exit != 0:
                sys.exit(f"inject_faults.py: an unharmed run cannot be resumed:\n{outcome.text}")
            return self.finished(run), outcome.text
        return self.make("whole", build)

    def exported(self):
        def build():
            self.must("export", "--run", self.half_run(), "--to", self.folder / "hf", "--dtype", "fp32")
            return self.folder / "hf"
        return self.make("hf", build)

    def shards(self):
        def build():
            self.must("prepare", self.recipe, "--output", self.folder / "shards", "--shard-tokens", "4000")
            return self.folder / "shards"
        return self.make("shards", build)

    def copy(self, what, name):
        place = self.folder / "copies" / name
        remove(place)
        place.parent.mkdir(exist_ok=True)
        (shutil.copytree if what.is_dir() else shutil.copy2)(what, place)
        return place

    def resume(self, run, *settings, **how):
        return self.run("train", "--resume", run, "--train.stop_at", "0", *settings, **how)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists() or path.is_symlink():
        path.unlink()


def without_times(text):
    """JSON output without what differs from run to run."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    for key in ("seconds", "tokens_per_second", "model", "run", "path"):
        values.pop(key, None) if isinstance(values, dict) else None
    return json.dumps(values, sort_keys=True)


def new_lines(outcome, before):
    """Lines that a run without the fault does not print."""
    known = set(before.splitlines())
    return [line for line in outcome.text.splitlines() if line not in known]


def tree_hash(folder):
    """Of all the files of a folder, by name and content."""
    value = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            value.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return value.hexdigest()
