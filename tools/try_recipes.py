#!/usr/bin/env python3
"""Tries every recipe of configs/ as its user would, at a tiny size: on files that `tightloop data sample` makes up in the
format of those that it reads, it trains some steps, is stopped, resumes, is evaluated, asked something and exported.

  tools/try_recipes.py [--quick] [--brief] [--program build/tightloop] [RECIPE ...]

Prints each command, and a table at the end: what worked, or the first line of what went wrong. --quick takes one recipe
of each kind; --brief makes files and trains, and no more. Exit code 1 where anything failed.
"""
import argparse, os, re, shlex, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK = ["text", "nanochat-base", "nanochat-sft", "minimind-64m-pretrain", "minimind-64m-sft", "finetune", "sft-gsm8k",
         "translate-multi30k"]
COMMON = ("--train.device cpu --train.precision fp32 --train.threads 1 --train.epochs 0 --train.steps 6 --train.logging_steps 2 "
          "--train.micro_batch 4 --train.accumulate 1 --train.eval_batches 2 --data.num_workers 0").split()
PARENT = "minimind-64m-pretrain"  # of configs/finetune.yaml, which leaves it to its user
ROWS = "--data.seq_len 96".split()
VOCABULARY = "--tokenizer.vocab_size 400 --model.vocab_size 0".split()
SMALL = "--model.layers 2 --model.width 32 --model.heads 2 --model.head_size 16".split()


def kind_of(name, text):
    if "translate" in name:
        return "pairs"
    if "format: question" in text or "stage: sft" in text or name == "finetune":
        return "chat"
    return "text"


def own_files(name):
    """Where a recipe leaves the files to its user."""
    return {"text": "--data.train text.txt", "finetune": "--data.train chats.jsonl",
            "translate": "--data.train pairs.tsv"}.get(name, "").split()


def settings_of(name, text, kind):
    """What makes it tiny."""
    tiny = list(COMMON)
    parent = re.search(r"init_from: runs/(\S+)", text)
    if name == "finetune":
        parent, tiny = True, tiny + ["--train.init_from", "runs/" + PARENT]
    if "tasks:" in text or name == "quickstart":
        tiny += "--tasks.questions 400 --tasks.held_out 20".split()
    if kind == "pairs":
        tiny += "--data.seq_len 96 --data.batch_tokens 512 --train.eval_translations 2 --tokenizer.vocab_size 60".split()
        tiny += SMALL[:-2] + "--model.ffn 64 --model.vocab_size 0".split()
    elif parent:
        tiny += ROWS
    else:
        tiny += ROWS + VOCABULARY + (SMALL if "nanochat" in name or "minimind" in name else SMALL[:-2])
        if "minimind" in name:
            tiny += "--model.kv_heads 1 --model.ffn 64".split()
        if "moe" in name:
            tiny += "--model.expert_ffn 32".split()
        if name == "quickstart":
            tiny = [x if x != "96" else "24" for x in tiny]
    if "holdout: 0.00" in text:
        tiny += "--data.holdout 0.05".split()
    return own_files(name) + tiny


class Trial:
    def __init__(self, program, folder):
        self.program, self.folder, self.failure = program, folder, None

    def run(self, arguments, text=""):
        """Whether the command worked; its output."""
        print("$ tightloop " + " ".join(shlex.quote(a) for a in arguments), flush=True)
        done = subprocess.run([self.program] + arguments, cwd=self.folder, input=text, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=dict(os.environ, OMP_NUM_THREADS="1"))
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        return done.returncode, lines

    def must(self, arguments, text=""):
        code, lines = self.run(arguments, text)
        if code == 0:
            return "yes"
        print("\n".join("  " + line for line in lines[-6:]), flush=True)
        self.failure = self.failure or f"{arguments[0]}: {lines[-1] if lines else 'exit ' + str(code)}"
        return "NO"


def attempt(program, folder, name, brief):
    path = os.path.join(ROOT, "configs", name + ".yaml")
    text = open(path).read()
    kind, run = kind_of(name, text), os.path.join("runs", name)
    trial, row = Trial(program, folder), {}
    row["files"] = trial.must(["data", "sample", path, "--to", "."] + own_files(name))
    row["trains"] = trial.must(["train", path, "--train.stop_at", "0" if brief else "3"] + settings_of(name, text, kind))
    if not trial.failure and not brief:
        row["resumes"] = trial.must(["train", "--resume", run, "--train.stop_at", "0"])
        saved = os.path.isdir(os.path.join(folder, run, "checkpoints", "step-00000006"))
        if not saved:
            trial.failure = trial.failure or "resume: there is no checkpoint of step 6"
        row["evaluates"] = trial.must(["eval", "--run", run, "--json"])
        if kind == "pairs":
            row["answers"] = trial.must(["translate", "--run", run, "--beam", "1"], "The old dog sees.\n")
        elif kind == "chat":
            row["answers"] = trial.must(["chat", "--run", run, "--max-tokens", "4", "--temperature", "0"], "Say: hello\n")
        else:
            row["answers"] = trial.must(["generate", "--run", run, "--prompt", "The old", "--max-tokens", "4"])
        code, lines = trial.run(["export", "--run", run, "--to", "out-" + name])
        row["exports"] = "yes" if code == 0 else "no: " + (lines[-1] if lines else "?")
        if code not in (0, 2):  # a sentence about what it cannot do is an answer, a crash is none
            trial.failure = trial.failure or f"export: exit {code}"
    return row, trial.failure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="names of recipes, without .yaml; all without any")
    parser.add_argument("--quick", action="store_true", help="one recipe of each kind")
    parser.add_argument("--brief", action="store_true", help="make files and train, and no more")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tightloop"))
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    everything = sorted(name[:-5] for name in os.listdir(os.path.join(ROOT, "configs")) if name.endswith(".yaml"))
    # Parents first.
    everything.sort(key=lambda name: ("sft" in name) + 2 * ("lora" in name) + (name == "finetune"))
    chosen = options.recipes or (QUICK if options.quick else everything)
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            began = time.time()
            row, failure = attempt(program, folder, name, options.brief)
            failed += failure is not None
            rows.append((name, row, failure, time.time() - began))
    print(f"\n{'recipe':24} {'files':6} {'trains':7} {'resumes':8} {'evaluates':10} {'answers':8} {'exports':8}")
    for name, row, failure, seconds in rows:
        cells = [row.get(key, "-") for key in ("files", "trains", "resumes", "evaluates", "answers", "exports")]
        short = [cell if not cell.startswith("no:") else "no" for cell in cells]
        print(f"{name:24} {short[0]:6} {short[1]:7} {short[2]:8} {short[3]:10} {short[4]:8} {short[5]:8} {seconds:5.1f} s")
        if cells[5].startswith("no:"):
            print("    export: " + cells[5][4:])
        if failure:
            print("    " + failure)
    print(f"{len(rows) - failed} of {len(rows)} recipes work.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
