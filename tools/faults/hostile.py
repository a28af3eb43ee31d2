"""Inputs that somebody made to do harm, or that came to be by accident and look like it."""
import json
import os
import pty
import resource
import signal
import struct
import subprocess
import time

from faults.harness import Outcome, remove, text
from faults.limits import refused

FAMILY = "hostile inputs"
# A title of the terminal's window, and a cleared screen: what data must never do to the one who looks at it.
ESCAPE = "\x1b]0;OWNED\x07\x1b[2JOWNED"
MEMORY = 1500  # MB that no small model needs


def bounded(outcome, seconds=60):
    """A verdict where it took far too long or too much memory; else None."""
    if outcome.exit is None or outcome.seconds > seconds:
        return "HANG"
    return "CRASH" if outcome.memory > MEMORY else None


def special_files(bench):
    folder, run = bench.folder, bench.half_run()
    fifo, null = folder / "fifo", "/dev/null"
    if not fifo.exists():
        os.mkfifo(fifo)
    places = {"a FIFO": fifo, "/dev/zero": "/dev/zero", "a folder": folder, "an empty file": null}
    for what, place in places.items():
        for name, arguments in (
                ("data.train", bench.train("special", "--data.train", place)),
                ("data.train, live", bench.train("special", "--data.train", place, "--data.tokenize", "live")),
                ("JSONL", bench.train("special", "--data.source", "jsonl", "--data.train", place)),
                ("Parquet", bench.train("special", "--data.source", "parquet", "--data.train", place)),
                ("tokenizer.path", bench.train("special", "--tokenizer.path", place)),
                ("a recipe", ["train", place]),
                ("prepare", ["prepare", bench.recipe, "--data.train", place, "--output", folder / "special"]),
                ("data check", ["data", "check", bench.recipe, "--data.train", place]),
                ("generate --model", ["generate", "--model", place, "--prompt", "x"]),
                ("generate --prompts", ["generate", "--model", run, "--device", "cpu", "--prompts", place]),
                ("eval --input", ["eval", "--model", run, "--device", "cpu", "--input", place]),
                ("eval --questions", ["eval", "--model", run, "--device", "cpu", "--questions", place])):
            # Memory that an endless file fills must not take the machine with it.
            outcome = bench.run(*arguments, seconds=20, limits=[(resource.RLIMIT_AS, 4 << 30)])
            done = name in ("generate --prompts", "data check", "a recipe", "eval --questions")
            bench.record(FAMILY, f"{what} as {name}", refused(outcome, done), outcome.last())
            remove(folder / "runs/special"), remove(folder / "special")


def long_lines(bench):
    run, line = bench.half_run(), folder_file(bench, "line.txt", "a" * 3_000_000 + "\n")
    model = ["--model", run, "--device", "cpu", "--max-tokens", "4"]
    calls = {"chat": ["chat", *model], "generate": ["generate", *model],
             "generate --prompts": ["generate", *model, "--prompts", line],
             "eval --input": ["eval", "--model", run, "--device", "cpu", "--input", line],
             "tokenizer encode": ["tokenizer", "encode", "--tokenizer", run / "tokenizer"],
             "train": bench.train("line", "--data.train", line, "--train.steps", "2", "--train.eval_steps", "0")}
    for name, arguments in calls.items():
        outcome = bench.run(*arguments, input=line.read_bytes(), seconds=60)
        verdict = outcome.failure() or bounded(outcome) or ("refused" if outcome.exit else "recovered")
        bench.record(FAMILY, f"a line of 3 MB of one letter to {name}", verdict, cost(outcome))
    running = bench.start(["chat", *model], stdin=subprocess.PIPE)
    try:
        running.process.stdin.write(line.read_bytes())
        running.process.stdin.flush()
    except BrokenPipeError:
        pass
    time.sleep(1)
    running.send(signal.SIGTERM)
    outcome = running.wait(20)
    bench.record(FAMILY, "SIGTERM while chat reads a line of 3 MB", outcome.failure() or "refused", cost(outcome))


def cost(outcome):
    return f"{outcome.seconds:.1f} s, {outcome.memory} MB, {outcome.last()[:120]}"


def folder_file(bench, name, content):
    path = bench.folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def on_terminal(bench, arguments, typed=b"", seconds=30):
    """What the program shows on a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen([bench.program, *map(os.fsencode, arguments)], stdin=its, stdout=its, stderr=its,
                               env=dict(bench.env, TERM="xterm"), cwd=bench.folder, start_new_session=True)
    os.close(its)
    shown, end, started = b"", time.time() + seconds, time.time()
    os.set_blocking(ours, False)
    sent = not typed
    while time.time() < end:
        if not sent and time.time() > started + 2:
            os.write(ours, typed)
            sent = True
        try:
            part = os.read(ours, 65536)
            if not part:
                break
            shown += part
        except BlockingIOError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
        except OSError:
            break
    exit = process.poll()
    if exit is None:
        process.kill()
        process.wait()
    os.close(ours)
    return Outcome(exit, shown, 0, 0)


def escapes(bench):
    folder, run = bench.folder, bench.half_run()
    model = ["--model", run, "--device", "cpu", "--max-tokens", "3"]
    sentences = (f"{ESCAPE} the cat {number} sat on the mat." for number in range(200))
    data = folder_file(bench, "escapes.txt", "\n\n".join(sentences))
    records = folder_file(bench, "escapes.jsonl", f'{{"text": 3, "{ESCAPE}": 1}}\nbroken {ESCAPE}\n' * 20)
    evil = folder_file(bench, f"evil{ESCAPE}.txt", ESCAPE)
    calls = {
        "generate's prompt": ["generate", *model, "--prompt", ESCAPE],
        "generate --prompts": ["generate", *model, "--prompts", data],
        "data show": ["data", "show", bench.recipe, "--data.train", data],
        "data check of a file by name": ["data", "check", bench.recipe, "--data.train", evil],
        "data check of bad records": ["data", "check", bench.recipe, "--data.source", "jsonl", "--data.train", records],
        "inspect batch": ["inspect", "batch", bench.recipe, "--data.train", data],
        "an option": ["train", bench.recipe, f"--train.{ESCAPE}", "1"],
        "a value": ["train", bench.recipe, "--train.lr", ESCAPE],
        "a verb": [f"train{ESCAPE}"],
        "a missing recipe": ["train", f"no{ESCAPE}.yaml"],
        "a missing file": bench.train("escaped", "--data.train", f"no{ESCAPE}.txt"),
        "a missing model": ["generate", "--model", f"no{ESCAPE}", "--prompt", "x"],
        "a run's name": bench.train(f"name{ESCAPE}", "--train.steps", "2"),
    }
    for name, arguments in calls.items():
        judge_screen(bench, name, on_terminal(bench, arguments))
    typed = f"{ESCAPE} hello\n/history\n/nothing{ESCAPE}\n/quit\n"
    judge_screen(bench, "chat", on_terminal(bench, ["chat", *model], typed.encode()))
    remove(evil)


def judge_screen(bench, name, outcome):
    raw = b"\x1b]0;OWNED" in outcome.out or b"\x1b[2JOWNED" in outcome.out
    verdict = "OTHER MEANING" if raw else outcome.failure() or ("refused" if outcome.exit else "recovered")
    bench.record(FAMILY, f"escape sequences in {name}", verdict, ascii(outcome.last()[:120]))


def numbers(bench):
    run = bench.half_run()
    generate = ["generate", "--model", run, "--device", "cpu", "--prompt", "the", "--max-tokens", "2"]
    options = "--temperature --top-p --min-p --repetition-penalty --top-k --seed --n --max-tokens --batch".split()
    settings = ("train.lr", "train.weight_decay", "train.steps", "train.seed", "data.holdout", "data.seq_len",
                "model.norm_eps", "model.rope_theta")
    for value in ("nan", "inf", "-inf", "-1", "1e999", "", "1,5"):
        for option in options:
            if value == "-1" and option == "--seed":
                continue  # any whole number is a seed
            outcome = bench.run(*generate, f"{option}={value}")
            bench.record(FAMILY, f"generate {option} {value}", refused(outcome), outcome.last())
        for setting in settings:
            outcome = bench.run("config", bench.recipe, f"--{setting}={value}")
            bench.record(FAMILY, f"{setting} {value}", refused(outcome), outcome.last())
    for option in ("--length-penalty", "--temperature", "--top-p"):
        for value in ("nan", "inf"):
            outcome = bench.run("translate", "--model", run, f"{option}={value}")
            bench.record(FAMILY, f"translate {option} {value}", refused(outcome), outcome.last())


# A Hugging Face folder's config.json that promises what no weights hold.
ABSURD = {
    "hidden_size": [10**9, 0, -32, 33, "32", 1.5, None], "num_hidden_layers": [10**9, 0, -1, 1000],
    "vocab_size": [2**31, 2**62, 0, -1, 10**7], "num_attention_heads": [0, -2, 10**6, 3],
    "num_key_value_heads": [0, -1, 3, 10**9], "intermediate_size": [10**9, 0, -1, 2**40], "head_dim": [0, -1, 10**9],
    "max_position_embeddings": [0, -1, 2**62], "rms_norm_eps": [-1, 1e300, "x", None], "rope_theta": [-1, 1e300, "x"],
    "eos_token_id": [10**9, -5, "x", [10**9]], "bos_token_id": [10**9], "torch_dtype": ["float3"], "dtype": [7],
    "model_type": ["unheard", 3, None], "architectures": [["Nothing"], 3], "hidden_act": ["tanh3"],
    "tie_word_embeddings": ["maybe"], "rope_scaling": [{"rope_type": "unheard"}, 3]}
# What generation does not need: it may stand there or be refused.
UNUSED = ("torch_dtype", "dtype", "architectures", "max_position_embeddings", "bos_token_id")


def absurd_models(bench):
    """Refused at once, before gigabytes are allocated."""
    for key, value in ((key, value) for key, values in ABSURD.items() for value in values):
        folder = bench.copy(bench.exported(), "absurd")
        config = json.loads((folder / "config.json").read_text())
        done = key in UNUSED or key not in config or value is None
        config[key] = value
        (folder / "config.json").write_text(json.dumps(config))
        judge_model(bench, f"config.json with {key} {value}", folder, done)
    for name, content in {"a stop token of 10^9": '{"eos_token_id": [1, 1000000000]}', "half of it": '{"eos_token_id": 1',
                          "deep JSON": "[" * 100000, "a list": "[1]"}.items():
        folder = bench.copy(bench.exported(), "absurd")
        (folder / "generation_config.json").write_text(content)
        judge_model(bench, f"generation_config.json with {name}", folder, False)
    nothing = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    for name, content in {
            "a header of 2^60 bytes": struct.pack("<Q", 2**60), "no tensor": header({}), "nothing in it": b"",
            "a tensor of 2^60 bytes": header({"x": nothing | {"shape": [2**58], "data_offsets": [0, 2**60]}}),
            "a negative shape": header({"x": nothing | {"shape": [-1, 4]}}) + bytes(16),
            "sizes that overflow": header({"x": nothing | {"shape": [2**32, 2**32], "data_offsets": [0, 0]}}),
            "deep JSON": header(b"[" * 100000)}.items():
        folder = bench.copy(bench.exported(), "absurd")
        (folder / "model.safetensors").write_bytes(content)
        judge_model(bench, f"model.safetensors with {name}", folder, False)


def judge_model(bench, case, folder, done):
    outcome = bench.run("generate", "--model", folder, "--device", "cpu", "--prompt", "the", "--max-tokens", "2")
    bench.record(FAMILY, case, outcome.failure() or bounded(outcome, 30) or refused(outcome, done), cost(outcome))


def header(values):
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    return struct.pack("<Q", len(body)) + body


def odd_names(bench):
    """Data files with odd names: trained on and resumed, or refused at the start."""
    for name in (b"caf\xe9.txt", b"two\nlines.txt", b" blank .txt", b"star*.txt", b"a'b\"c.txt", b"#a: {b}.txt",
                 b"[a].txt", "gro\u00dfe \u00dcbung.txt".encode()):
        path = os.path.join(os.fsencode(bench.folder), name)
        with open(path, "w") as file:
            file.write(text(bench.options.seed, 400))
        run = bench.folder / "runs/odd"
        remove(run)
        outcome = bench.run(*bench.train("odd", "--train.stop_at", "10", "--data.train", path))
        verdict, detail = outcome.failure() or "refused", outcome.last()
        if outcome.exit == 0:
            again = bench.resume(run)
            same = again.exit == 0 and bench.finished(run) == bench.whole()[0]
            verdict, detail = again.failure() or ("recovered" if same else "LOST"), again.last()
        bench.record(FAMILY, f"a data file named {name!r}", verdict, detail)
        os.unlink(path)


def inject(bench):
    parts = [special_files, long_lines, escapes, numbers, absurd_models, odd_names]
    for part in parts[1:2] + parts[5:] if bench.options.quick else parts:
        part(bench)
