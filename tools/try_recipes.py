#!/usr/bin/env python3
"""Tries every recipe of configs/ as its user would, at a tiny size: on files of the right kind, made on the spot, it
trains some steps, is stopped, resumes, is evaluated, asked something and exported.

  tools/try_recipes.py [--quick] [--program build/tightloop] [RECIPE ...]

Prints each command, and a table at the end: what worked, or the first line of what went wrong. --quick takes one recipe
of each kind. Exit code 1 where anything failed.
"""
import argparse, json, os, re, shlex, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK = ["text", "nanochat-d4-base", "nanochat-d4-mid", "minimind-64m-pretrain", "minimind-64m-sft", "finetune", "sft-gsm8k",
         "translate-multi30k"]
COMMON = ("--train.device cpu --train.precision fp32 --train.threads 1 --train.epochs 0 --train.steps 6 --train.logging_steps 2 "
          "--train.micro_batch 4 --train.accumulate 1 --train.eval_batches 2 --data.num_workers 0").split()
PARENT = "minimind-64m-pretrain"  # of configs/finetune.yaml, which leaves it to its user
ROWS = "--data.seq_len 48".split()
VOCABULARY = "--tokenizer.vocab_size 400 --model.vocab_size 0".split()
SMALL = "--model.layers 2 --model.width 32 --model.heads 2".split()
WORDS = "the a small old red dog cat house tree river sees finds likes near under today often and we they".split()


def sentence(seed):
    words = (WORDS[(seed * 7919 // 3 ** i + i) % len(WORDS)] for i in range(5 + seed % 5))
    return " ".join(words).capitalize() + "."


def write_files(folder):
    """A user's files: text, conversations, questions, and pairs in two files and in one."""
    def write(name, text):
        with open(os.path.join(folder, name), "w") as out:
            out.write(text)
    write("text.txt", "\n\n".join(" ".join(sentence(5 * p + i) for i in range(4)) for p in range(150)))
    chats = [{"messages": [{"role": "user", "content": "Say: " + sentence(i)}, {"role": "assistant", "content": sentence(i)}]}
             for i in range(150)]
    write("chats.jsonl", "".join(json.dumps(chat) + "\n" for chat in chats))
    write("questions.jsonl", "".join(json.dumps({"question": f"What is {i} + 1?", "answer": f"It is {i + 1}. #### {i + 1}"}) + "\n"
                                     for i in range(150)))
    pairs = [(sentence(i), sentence(i)[::-1]) for i in range(300)]
    write("source.txt", "".join(a + "\n" for a, _ in pairs))
    write("target.txt", "".join(b + "\n" for _, b in pairs))
    write("pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in pairs))


def kind_of(name, text):
    if "translate" in name:
        return "pairs"
    if re.search(r"^  mixture:", text, re.M):
        return "mixture"
    if "format: question" in text:
        return "questions"
    return "chat" if "stage: sft" in text else "text"


def settings_of(name, text, kind):
    """What a user gives, and what makes it tiny."""
    given = {"text": "--data.source text --data.train text.txt",
             "questions": "--data.train questions.jsonl",
             "chat": "--data.source jsonl --data.train chats.jsonl",
             "mixture": "--data.mixture 'name=words source=text train=text.txt weight=1,name=mine source=jsonl train=chats.jsonl weight=1'",
             "pairs": "--data.source pairs --data.train pairs.tsv"}[kind]
    if "train_target" in text:
        given = "--data.train source.txt --data.train_target target.txt --data.val source.txt --data.val_target target.txt"
    if name == "quickstart":
        given = "--tasks.questions 400 --tasks.held_out 20"
    tiny = list(COMMON)
    parent = re.search(r"init_from: runs/(\S+)", text)
    if name == "finetune":
        parent, given = True, given + " --train.init_from runs/" + PARENT
    if kind == "pairs":
        tiny += "--data.seq_len 96 --data.batch_tokens 512 --train.eval_translations 2 --tokenizer.vocab_size 60".split()
        tiny += SMALL + "--model.ffn 64 --model.vocab_size 0".split()
    elif parent:
        tiny += ROWS
    else:
        tiny += ROWS + SMALL + VOCABULARY
        if "nanochat" in text:
            tiny += ["--model.depth", "0"]
        if "minimind" in text and "preset" in text:
            tiny += "--model.kv_heads 1 --model.ffn 64".split()
        if "moe" in name:
            tiny += "--model.expert_ffn 32".split()
        if name == "quickstart":
            tiny = [x if x != "48" else "24" for x in tiny]
    return shlex.split(given) + tiny


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


def attempt(program, folder, name):
    path = os.path.join(ROOT, "configs", name + ".yaml")
    text = open(path).read()
    kind, run = kind_of(name, text), os.path.join("runs", name)
    trial, row = Trial(program, folder), {}
    row["trains"] = trial.must(["train", path, "--train.stop_at", "3"] + settings_of(name, text, kind))
    if not trial.failure:
        row["resumes"] = trial.must(["train", "--resume", run, "--train.stop_at", "0"])
        saved = os.path.isdir(os.path.join(folder, run, "checkpoints", "step-00000006"))
        if not saved:
            trial.failure = trial.failure or "resume: there is no checkpoint of step 6"
        row["evaluates"] = trial.must(["eval", "--run", run, "--json"])
        if kind == "pairs":
            row["answers"] = trial.must(["translate", "--run", run, "--beam", "1"], "The old dog sees.\n")
        elif kind in ("chat", "questions"):
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
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tightloop"))
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    everything = sorted(name[:-5] for name in os.listdir(os.path.join(ROOT, "configs")) if name.endswith(".yaml"))
    everything.sort(key=lambda name: name == "finetune")
    chosen = options.recipes or (QUICK if options.quick else everything)
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        for name in chosen:
            began = time.time()
            row, failure = attempt(program, folder, name)
            failed += failure is not None
            rows.append((name, row, failure, time.time() - began))
    print(f"\n{'recipe':24} {'trains':7} {'resumes':8} {'evaluates':10} {'answers':8} {'exports':8}")
    for name, row, failure, seconds in rows:
        cells = [row.get(key, "-") for key in ("trains", "resumes", "evaluates", "answers", "exports")]
        short = [cell if not cell.startswith("no:") else "no" for cell in cells]
        print(f"{name:24} {short[0]:7} {short[1]:8} {short[2]:10} {short[3]:8} {short[4]:8} {seconds:5.1f} s")
        if cells[4].startswith("no:"):
            print("    export: " + cells[4][4:])
        if failure:
            print("    " + failure)
    print(f"{len(rows) - failed} of {len(rows)} recipes work.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
