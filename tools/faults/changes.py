"""What a run stands on is changed before it is resumed, or while it is at work."""
import json
import os
import re
import shutil
import time

from faults.harness import new_lines, remove, text
from faults.signals import last_logged, saved_step

FAMILY = "changed under a run"


def judge(bench, run, case, names, undo=None):
    """Resumes: refused, or the same result, or a line that names what has changed. After a refusal and `undo` the run
    goes on as if nothing had been."""
    expected, before = bench.whole()
    outcome = bench.resume(run)
    verdict = outcome.failure()
    if not verdict and outcome.exit != 0:
        verdict = "refused" if any(name in outcome.text for name in names) else "NO SENTENCE"
    if not verdict and bench.finished(run) == expected:
        verdict = "no effect"
    if not verdict:
        said = any(name in line for line in new_lines(outcome, before) for name in names)
        verdict = "told" if said else "OTHER MEANING"
    if verdict == "refused" and undo:
        undo()
        outcome = bench.resume(run)
        if outcome.exit != 0 or bench.finished(run) != expected:
            case, verdict = case + ", then put back", "LOST"
    bench.record(FAMILY, case, verdict, outcome.last())


def data_changes(bench):
    original, stat, other = bench.data.read_text(), bench.data.stat(), text("other", 400)
    middle = len(original) // 2
    letter = "x" if original[middle] != "x" else "y"
    changes = {
        "data replaced": other,
        "data replaced by less": other[:middle],
        "data appended": original + "\n" + other[:2000],
        "data rewritten at the same size": original.replace("cat", "dog"),
        "one letter of the data changed": original[:middle] + letter + original[middle + 1:],
        "data cut": original[:middle],
    }

    def restore():
        bench.data.write_text(original)
        os.utime(bench.data, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    for case, content in changes.items():
        for old in (False, True):
            run = bench.copy(bench.half_run(), "changed-data")
            bench.data.write_text(content)
            if old:
                os.utime(bench.data, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            judge(bench, run, case + (", its time kept" if old else ""), [bench.data.name], restore)
    bench.data.unlink()
    judge(bench, bench.copy(bench.half_run(), "changed-data"), "data removed", [bench.data.name], restore)
    os.utime(bench.data)
    judge(bench, bench.copy(bench.half_run(), "changed-data"), "data touched", [bench.data.name])
    restore()


EDITS = """train.lr 0.02, train.seed 7, train.weight_decay 0.3, train.schedule constant, train.micro_batch 8,
train.steps 24, train.accumulate 2, train.optimizer muon, data.seq_len 24, data.holdout 0.3, data.documents line,
data.rows pad, model.layers 2, model.norm_eps 0.01, model.rope_theta 500, tokenizer.vocab_size 320,
chat.form minimind"""


def config_edits(bench):
    for edit in EDITS.split(","):
        setting, value = edit.split()
        section, key = setting.split(".")
        path = bench.copy(bench.half_run(), "edited") / "config.yaml"
        before = path.read_text()
        after = re.sub(rf"(?ms)(^{section}:.*?^\s+{key}:)[^\n]*", rf"\1 {value}", before, count=1)
        path.write_text(after)
        if after == before:
            bench.record(FAMILY, f"config.yaml: {setting}", "skipped", "not found")
        else:
            judge(bench, path.parent, f"config.yaml: {setting} edited to {value}", [key, "config.yaml"],
                  lambda: path.write_text(before))
    path = bench.copy(bench.half_run(), "edited") / "config.yaml"
    before = path.read_text()
    path.write_text("")
    judge(bench, path.parent, "config.yaml emptied", ["config.yaml"], lambda: path.write_text(before))
    path = bench.copy(bench.half_run(), "edited") / "config.yaml"
    path.unlink()
    judge(bench, path.parent, "config.yaml removed", ["config.yaml"], lambda: path.write_text(before))


def tokenizer_edits(bench):
    run = bench.copy(bench.half_run(), "edited")
    path = run / "tokenizer/tokenizer.json"
    values = json.loads(path.read_text())
    vocab = values["model"]["vocab"]
    a, b = list(vocab)[100], list(vocab)[101]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    before = path.read_text()
    path.write_text(json.dumps(values))
    judge(bench, run, "two ids of tokenizer.json swapped", ["tokenizer"])
    outcome = bench.run("generate", "--model", run, "--device", "cpu", "--prompt", "the cat")
    silent = "told" if "tokenizer" in outcome.text else "OTHER MEANING"
    bench.record(FAMILY, "two ids of tokenizer.json swapped, generate",
                 outcome.failure() or ("refused" if outcome.exit else silent), outcome.last())
    path.write_text(before)
    (run / "tokenizer").rename(run.with_name("aside"))

    def put_back():
        remove(run / "tokenizer")
        run.with_name("aside").rename(run / "tokenizer")
    judge(bench, run, "the run's tokenizer removed", ["tokenizer"], put_back)


def during(bench, case, name, settings, change, done):
    """`change(run)` happens while the run is at work; `done(run)`: whether an exit code of 0 is then true."""
    run = bench.folder / "runs" / name
    remove(run)
    running = bench.start(bench.train(name, "--train.steps", "1500", *settings))
    if not running.until(lambda: last_logged(run) >= 5, bench.options.timeout):
        return bench.record(FAMILY, case, "skipped", running.wait(0).last())
    change(run)
    outcome = running.wait(bench.options.timeout)
    verdict = outcome.failure()
    if not verdict and outcome.exit == 0:
        verdict = "recovered" if done(run) else "FALSE SUCCESS"
    bench.record(FAMILY, case, verdict or "refused", outcome.last())
    remove(run)


def resumable(bench):
    def check(run):
        step = saved_step(run)
        again = ["train", "--resume", run, "--train.steps", str(step + 2)]
        return step >= 1500 and bench.run(*again).exit == 0
    return check


def while_running(bench):
    for case, change in {
            "the run's folder removed during the run": remove_hard,
            "the run's checkpoints removed during the run": lambda run: remove_hard(run / "checkpoints"),
            "the run's folder renamed during the run": lambda run: run.rename(run.with_name("moved")),
            "a file in the place of checkpoints": lambda run: replace_by_file(run / "checkpoints")}.items():
        during(bench, case, "gone", [], change, resumable(bench))
        remove(bench.folder / "runs/moved")
    source = bench.folder / "live.txt"
    for how, change in {"cut": lambda run: os.truncate(source, source.stat().st_size // 3),
                        "rewritten": lambda run: source.write_text(text("other", 3000)),
                        "removed": lambda run: source.unlink()}.items():
        source.write_text(text("live", 3000))
        settings = ["--data.train", source, "--data.tokenize", "live", "--train.steps", "4000"]
        during(bench, f"a data file {how} during the run", "live", settings, change, lambda run: how == "removed")
    shards = bench.copy(bench.shards(), "cut-shards")
    large = [path for path in shards.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    settings = ["--data.source", "shards", "--data.train", shards, "--tokenizer.path", shards / "tokenizer"]
    # Programs that map their files die of SIGBUS here.
    during(bench, "shards cut during the run", "cut", settings, lambda run: [os.truncate(path, 100) for path in large],
           lambda run: False)


def remove_hard(path):
    """Removes a folder that another process writes into."""
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.01)


def replace_by_file(path):
    remove_hard(path)
    path.write_text("x")


def inject(bench):
    bench.whole()  # before anything is changed
    parts = [data_changes, config_edits, tokenizer_edits, while_running]
    for part in parts[2:3] if bench.options.quick else parts:
        part(bench)
