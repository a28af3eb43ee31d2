"""Makes the folder suite/: small task files, a small model that has learned a part of them, and what nanochat's own functions
make of it, for tests/infer/suite_golden_test.cpp.

    .deps/peers/bin/python tests/golden/make_suite.py PATH_OF_NANOCHAT

From a checkout of nanochat (92d63d4), which is imported and not copied: evaluate_core() and evaluate_example() on a folder that
has the layout of its CORE bundle; run_categorical_eval() with its ARC and MMLU, run_generative_eval() with its GSM8K and its
engine's calculator; the programs of its HumanEval. fp32 on the CPU.
"""
import json
import os
import pathlib
import random
import sys
import tempfile
import types

if len(sys.argv) != 2:
    sys.exit(__doc__)
os.environ["NANOCHAT_DTYPE"] = "float32"
BASE = tempfile.mkdtemp()
os.environ["NANOCHAT_BASE_DIR"] = BASE
sys.path.insert(0, sys.argv[1])
sys.modules["rustbpe"] = types.ModuleType("rustbpe")  # only trains tokenizers

import tiktoken
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import nanochat.core_eval as core_eval
import tasks.humaneval as humaneval
from make_models import nanochat as rename
from nanochat.engine import Engine
from nanochat.gpt import GPT, GPTConfig
from nanochat.tokenizer import SPECIAL_TOKENS, SPLIT_PATTERN, RustBPETokenizer
from scripts.base_eval import evaluate_core
from scripts.chat_eval import run_categorical_eval, run_generative_eval
from tasks.arc import ARC
from tasks.common import Task
from tasks.gsm8k import GSM8K
from tasks.mmlu import MMLU

FOLDER = pathlib.Path(__file__).with_name("suite")
SIZES = dict(layers=2, width=32, heads=2, kv_heads=1, context=256, window_pattern="SL")
MOST_TOKENS = 48
COLOURS = ["red", "green", "blue", "yellow", "white"]
THINGS = ["sky", "sea", "sun", "snow", "grass", "sand", "rose", "stone", "leaf", "moon", "hill", "coat"]
NAMES = ["Tom", "Ann", "Kim", "Lea", "Max", "Eva"]
FRUITS = ["apples", "pears", "plums", "nuts"]


def make_tasks(rng):
    """By file: the problems. Contexts have white space at their ends, as the real ones do."""
    files = {}
    colour = {thing: rng.choice(COLOURS) for thing in THINGS}
    facts = []
    for thing in THINGS:
        choices = rng.sample([c for c in COLOURS if c != colour[thing]], 3)
        gold = rng.randrange(4)
        choices.insert(gold, colour[thing])
        facts.append({"query": f"Question: what colour is the {thing}?\nAnswer:", "choices": choices, "gold": gold})
    files["facts"] = facts
    # Choices of many lengths, one of which begins like another.
    files["endings"] = [{"query": f"{rng.choice(NAMES)} has {rng.choice(FRUITS)} and", "gold": rng.randrange(3),
                         "choices": ["eats them", "eats them all day long", f"sees the {rng.choice(THINGS)}"]} for _ in range(9)]
    files["schema"] = [{"context_options": [f"The {a} is {colour[a]} and so", f"The {a} is {rng.choice(COLOURS)} but it"], "gold": rng.randrange(2),
                        "continuation": f"{rng.choice(['looks like', 'is not'])} the {rng.choice(THINGS)}"} for a in THINGS[:10]]
    files["words"] = [{"context": f"  The {a} is {colour[a]}. The {b} is{' ' * rng.randrange(3)}\n", "continuation": f"{colour[b]}"}
                      for a, b in zip(THINGS, THINGS[3:] + THINGS[:3])]
    arc = []
    for i, thing in enumerate(THINGS):
        choices = rng.sample(COLOURS, 4)
        if colour[thing] not in choices:
            choices[rng.randrange(4)] = colour[thing]
        labels = ["1", "2", "3", "4"] if i % 3 == 0 else ["A", "B", "C", "D"]
        arc.append({"question": f"Which is the {thing}?", "choices": {"text": choices, "label": labels},
                    "answerKey": labels[choices.index(colour[thing])]})
    files["arc"] = arc
    files["mmlu"] = [{"question": f"The {t} is?", "choices": rng.sample(COLOURS, 4), "answer": rng.randrange(4), "subject": "colours"} for t in THINGS]
    gsm = []
    for _ in range(14):
        a, b = rng.randrange(2, 30), rng.randrange(2, 9)
        gsm.append({"question": f"{rng.choice(NAMES)} has {a} {rng.choice(FRUITS)} for {b} days. How many?",
                    "answer": f"{a}*{b}=<<{a}*{b}={a * b}>>{a * b}\n#### {a * b}"})
    files["gsm8k"] = gsm
    return files


CORE = [("facts", "multiple_choice", 2, "\\n", 25.0), ("endings", "multiple_choice", 1, " ", 33.3), ("endings_zero", "multiple_choice", 0, None, 33.3),
        ("schema", "schema", 0, " ", 50.0), ("schema_shots", "schema", 3, " ", 50.0), ("words", "language_modeling", 0, " ", 0.0),
        ("words_shots", "language_modeling", 2, " ", 0.0)]


def write_folder(files):
    (FOLDER / "eval_data").mkdir(parents=True, exist_ok=True)
    for name, problems in files.items():
        place = FOLDER / "eval_data" if "gold" in problems[0] or "continuation" in problems[0] else FOLDER
        (place / f"{name}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
    text, table = "icl_tasks:\n", "Eval Task,Task Category,#shots,Random baseline,Description\n"
    for label, kind, shots, delimiter, baseline in CORE:
        text += f"-\n  label: {label}\n  dataset_uri: {label.split('_')[0]}.jsonl\n  num_fewshot: [{shots}]\n  icl_task_type: {kind}\n"
        text += "" if delimiter is None else f'  continuation_delimiter: "{delimiter}"\n'
        text += "  has_categories: false\n"
        table += f'{label},"made up, here",{shots},{baseline},"a task, in words"\n'
    (FOLDER / "core.yaml").write_text(text)
    (FOLDER / "eval_meta_data.csv").write_text(table)
    (FOLDER / "chat.yaml").write_text(f"""# nanochat's chat tasks. Its order is the file's.
suite:
  seed: -1
  max_tokens: {MOST_TOKENS}
tasks:
- {{name: arc, kind: chat_choice, data: arc.jsonl, answer_field: answerKey, baseline: 0.25}}
- {{name: mmlu, kind: chat_choice, data: mmlu.jsonl, baseline: 0.25}}
- {{name: gsm8k, kind: chat_generation, data: gsm8k.jsonl}}
""")
    os.symlink(FOLDER, os.path.join(BASE, "eval_bundle"))


def task_of(kind, rows):
    """A task of nanochat's with our rows in place of a download."""
    task = kind.__new__(kind)
    Task.__init__(task)
    task.ds = rows
    return task


def make_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=256 + 90, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    ordinary = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    byte_of = {char: byte for byte, char in byte_characters().items()}
    ranks = {bytes(byte_of[c] for c in token): i for token, i in tokenizer.get_vocab().items() if i < ordinary}
    encoding = tiktoken.Encoding("golden", pat_str=SPLIT_PATTERN, mergeable_ranks=ranks,
                                 special_tokens={name: ordinary + i for i, name in enumerate(SPECIAL_TOKENS)})
    return RustBPETokenizer(encoding, "<|bos|>")


def byte_characters():
    """The characters that stand for bytes in tokenizer.json."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)}


def train(model, documents, rng, steps=400, rows=8):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        chosen = [rng.choice(documents) for _ in range(rows)]
        length = max(map(len, chosen)) - 1
        ids, targets = torch.zeros(rows, length, dtype=torch.long), torch.full((rows, length), -1)
        for i, document in enumerate(chosen):
            ids[i, :len(document) - 1], targets[i, :len(document) - 1] = torch.tensor(document[:-1]), torch.tensor(document[1:])
        loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (steps - step) / (steps / 2))
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    model.eval()


def documents_of(files, tokenizer, rng):
    """A part of the problems with their answers, base and chat."""
    bos = tokenizer.get_bos_token_id()
    texts = [f"{p['query']}\n{p['choices'][p['gold']]}\n\n" for p in files["facts"][:8]]
    texts += [f"{p['query']} {p['choices'][p['gold']]}" for p in files["endings"][:5]]
    texts += [f"{p['context_options'][p['gold']]} {p['continuation']}" for p in files["schema"][:6]]
    texts += [f"{p['context'].strip()} {p['continuation']}" for p in files["words"][:9]]
    documents = [tokenizer.encode(text, prepend=bos) for text in texts]
    chats = [(ARC, files["arc"][:8]), (MMLU, files["mmlu"][:7]), (GSM8K, files["gsm8k"][:10]), (GSM8K, files["gsm8k"][:10])]
    for kind, rows in chats:
        task = task_of(kind, rows)
        documents += [tokenizer.render_conversation(task[i])[0] for i in range(len(rows))]
    return documents


def core_results(model, tokenizer, files):
    """evaluate_core() for the figures; evaluate_example() again for each problem, with the losses that it compares."""
    whole = evaluate_core(model, tokenizer, torch.device("cpu"))
    seen = {}
    forward, batchers = core_eval.forward_model, {k: getattr(core_eval, f"batch_sequences_{k}") for k in ("mc", "schema", "lm")}

    def keep_losses(*arguments):
        seen["losses"], predictions = forward(*arguments)
        return seen["losses"], predictions

    def keep_spans(batcher):
        def inner(*arguments):
            tokens, starts, ends = batcher(*arguments)
            seen["spans"] = list(zip(starts, ends))
            return tokens, starts, ends
        return inner

    core_eval.forward_model = keep_losses
    for k, batcher in batchers.items():
        setattr(core_eval, f"batch_sequences_{k}", keep_spans(batcher))
    out = {}
    for label, kind, shots, delimiter, _ in CORE:
        data = [dict(p) for p in files[label.split("_")[0]]]
        random.Random(1337).shuffle(data)
        meta = {"task_type": kind, "num_fewshot": shots, "continuation_delimiter": " " if delimiter is None else delimiter.replace("\\n", "\n")}
        right, losses = [], []
        for i in range(len(data)):
            right.append(int(core_eval.evaluate_example(i, model, tokenizer, data, torch.device("cpu"), meta)))
            means = [seen["losses"][row, s - 1:e - 1].mean().item() for row, (s, e) in enumerate(seen["spans"])]
            losses.append([None if m != m else m for m in means])
        assert abs(sum(right) / len(right) - whole["results"][label]) < 1e-6
        out[label] = {"accuracy": whole["results"][label], "centered": whole["centered_results"][label], "right": right, "losses": losses}
        print(label, f"{whole['results'][label]:.3f}")
    return {"tasks": out, "core": whole["core_metric"]}


def chat_results(model, tokenizer, files):
    engine = Engine(model, tokenizer)
    out, centred = {}, 0
    for name, kind, baseline in (("arc", ARC, 0.25), ("mmlu", MMLU, 0.25), ("gsm8k", GSM8K, 0.0)):
        rows = files[name]
        task = task_of(kind, rows)
        run = (lambda t: run_categorical_eval(t, tokenizer, model, 5)) if kind is not GSM8K else \
            (lambda t: run_generative_eval(t, tokenizer, model, engine, 1, MOST_TOKENS, 0.0, 50))
        accuracy = run(task)
        out[name] = {"accuracy": accuracy, "right": [int(run(task_of(kind, [row]))) for row in rows]}
        centred += (accuracy - baseline) / (1 - baseline)
        if kind is GSM8K:
            prompts = [tokenizer.render_for_completion(task[i]) for i in range(len(rows))]
            made = [engine.generate_batch(p, num_samples=1, max_tokens=MOST_TOKENS, temperature=0.0)[0][0] for p in prompts]
            out[name]["answers"] = [tokenizer.decode(ids[len(p):]) for p, ids in zip(prompts, made)]
            out[name]["forced"] = sum(text.count("<|output_end|>") for text in out[name]["answers"])
        print(name, accuracy, out[name].get("answers", [])[:2])
    return {"tasks": out, "core": centred / len(out)}


def programs():
    """What HumanEval would run."""
    kept = []
    humaneval.execute_code = lambda program: kept.append(program) or types.SimpleNamespace(success=True)
    task = humaneval.HumanEval.__new__(humaneval.HumanEval)
    prompts = ["from typing import List\nimport math\n\n\ndef f(x: int) -> int:\n    \"\"\" One more. \"\"\"\n", "# a comment\nimport os\ndef f(x):\n",
               "def f(x):\n    import os\n"]
    answers = ["def f(x):\n    return x + 1", "Sure:\n```python\ndef f(x):\n    return x + 1\n```\nIt adds one.\n```\nother\n```", "```\n\nf = abs\n\n```",
               "```python def f(x): pass```", "```python\nf = 1", "  ``` \n f=2\n``` ", "```\n```", "```\n\n```"]
    out = []
    for prompt in prompts:
        for answer in answers:
            task.evaluate({"messages": [{"content": prompt}], "test": "def check(f):\n    assert f(1) == 2\n", "entry_point": "f"}, answer)
            out.append({"prompt": prompt, "answer": answer, "program": kept[-1]})
    return out


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rng = random.Random(11)
    files = make_tasks(rng)
    write_folder(files)
    tokenizer = make_tokenizer([json.dumps(p) for problems in files.values() for p in problems for _ in range(3)])
    V = tokenizer.get_vocab_size()
    model = GPT(GPTConfig(sequence_len=SIZES["context"], vocab_size=V, n_layer=SIZES["layers"], n_head=SIZES["heads"], n_kv_head=SIZES["kv_heads"],
                          n_embd=SIZES["width"], window_pattern=SIZES["window_pattern"]), pad_vocab_size_to=V)
    model.init_weights()
    train(model, documents_of(files, tokenizer, rng), rng)
    weights = {name: value.detach().float().contiguous().clone() for name, value in rename(dict(model.named_parameters())).items()}
    save_file(weights, str(FOLDER / "model.safetensors"), metadata={"model": json.dumps({"family": "nanochat", "vocab_size": V, **SIZES})})
    with torch.inference_mode():
        results = {"base": core_results(model, tokenizer, files), "chat": chat_results(model, tokenizer, files), "programs": programs()}
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print("CORE", results["base"]["core"], "chat", results["chat"]["core"], sum(f.stat().st_size for f in FOLDER.rglob("*") if f.is_file()), "bytes")


main()
