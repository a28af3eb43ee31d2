"""Makes nanochat.json: what nanochat's own code makes of some depths, and the rows of its two loaders, for
tests/train/depth_dial_test.cpp and tests/data/fit_test.cpp.

    .deps/peers/bin/python tests/golden/make_nanochat.py CHECKOUT_OF_NANOCHAT

nanochat at commit 92d63d4. Nothing of it is copied: the rules are the statements of scripts/base_train.py between its
own markers, run with its default arguments; the loaders are nanochat/dataloader.py and the generator in
scripts/chat_sft.py, with rendering by the method of its tokenizer, on documents of ours.
"""
import ast
import json
import math
import pathlib
import random
import re
import sys
import tempfile
import types

import pyarrow as pa
import pyarrow.parquet as pq
import torch

CHECKOUT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(CHECKOUT))
from nanochat import dataloader
from nanochat.gpt import GPT, GPTConfig

BASE = (CHECKOUT / "scripts/base_train.py").read_text()
SFT = (CHECKOUT / "scripts/chat_sft.py").read_text()
quiet = lambda *args, **kwargs: None


def between(text, first, last):
    """The lines from the one that begins with `first` up to the one that begins with `last`."""
    begin = re.search("^" + re.escape(first), text, re.M).start()
    return text[begin:begin + re.search("^" + re.escape(last), text[begin:], re.M).start()]


def default_arguments():
    names = {}
    for call in ast.walk(ast.parse(BASE)):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            options = {k.arg: k.value for k in call.keywords}
            if "default" in options:
                value = eval(compile(ast.Expression(options["default"]), "default", "eval"))
                names[call.args[0].value.lstrip("-").replace("-", "_")] = value
    return types.SimpleNamespace(**names)


def depth_of(depth, ratio=None):
    args = default_arguments()
    args.depth = depth
    if ratio:
        args.target_param_data_ratio = ratio
    space = dict(args=args, GPT=GPT, GPTConfig=GPTConfig, torch=torch, math=math, print0=quiet, vocab_size=32768)
    exec(between(BASE, "def build_model_meta", "# Build the model, move"), space)
    space["model"] = space["build_model_meta"](depth)
    exec(between(BASE, "# Get the parameter counts", "# ----"), space)
    exec(between(BASE, "if args.num_iterations > 0:", "total_tokens ="), space)
    exec(between(BASE, "def get_lr_multiplier", "# ----"), space)
    steps, config, scale = space["num_iterations"], space["model"].config, space["batch_lr_scale"]
    looked_at = sorted({0, 1, 39, 40, 399, 400, steps // 2, round(steps * 0.35), steps - 1} & set(range(steps)))
    return {
        "depth": depth, "ratio": args.target_param_data_ratio, "layers": config.n_layer, "width": config.n_embd,
        "heads": config.n_head, "kv_heads": config.n_kv_head, "vocab_size": config.vocab_size, "seq_len": args.max_seq_len,
        "windows": config.window_pattern, "scaling_parameters": space["num_scaling_params"], "parameters": space["num_params"],
        "tokens": space["target_tokens"], "step_tokens": space["total_batch_size"], "steps": steps,
        "matrix_lr": args.matrix_lr * scale, "embedding_lr": args.embedding_lr * scale,
        "unembedding_lr": args.unembedding_lr * scale, "scalar_lr": args.scalar_lr * scale,
        "weight_decay": space["weight_decay_scaled"], "warmup_steps": args.warmup_steps,
        "decay_fraction": args.warmdown_ratio, "min_lr": args.final_lr_frac,
        "at": [[it, space["get_lr_multiplier"](it), space["get_muon_momentum"](it), space["get_weight_decay"](it)]
               for it in looked_at],
    }


BOS = 257  # of tests/data/byte_tokenizer.h, where bytes are ids


def base_rows():
    """Documents of [BOS, n, n, ...] by their number n: a row is told by [number, tokens] of each of its pieces."""
    rng = random.Random(3)
    lengths = [rng.choice([rng.randint(2, 12), rng.randint(2, 40), rng.randint(30, 70)]) for _ in range(2304)]
    rows, B, T = [], 4, 32
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"text": [f"{i} {n}" for i, n in enumerate(lengths)]})
        pq.write_table(table, folder + "/a.parquet", row_group_size=1024)
        dataloader.list_parquet_files = lambda **options: [folder + "/a.parquet", folder + "/val.parquet"]
        dataloader.get_dist_info = lambda: (False, 0, 0, 1)

        class Tokenizer:
            def get_bos_token_id(self):
                return BOS

            def encode(self, texts, prepend, num_threads):
                return [[prepend] + [1000 + int(t.split()[0])] * (int(t.split()[1]) - 1) for t in texts]

        loader = dataloader.tokenizing_distributed_data_loader_with_state_bos_bestfit(Tokenizer(), B, T, "train", device="cpu")
        for inputs, targets, state in loader:
            if state["epoch"] > 1:
                break
            assert torch.equal(inputs[:, 1:], targets[:, :-1])
            for row in torch.cat([inputs, targets[:, -1:]], 1).tolist():
                pieces = []
                for i, token in enumerate(row):
                    if token == BOS:
                        pieces.append([row[i + 1] - 1000 if i + 1 < len(row) else -1, 1])
                    else:
                        pieces[-1][1] += 1
                rows.append(pieces)
    return {"lengths": lengths, "seq_len": T, "rows": rows}


def sft_rows():
    rng = random.Random(5)
    word = lambda: "".join(rng.choice("abcdefgh") for _ in range(rng.randint(1, 9)))
    words = lambda most: " ".join(word() for _ in range(rng.randint(1, most)))
    conversations = []
    for i in range(220):
        messages = [{"role": "system", "content": word()}] if i % 9 == 0 else []
        for _ in range(rng.choice([1, 1, 1, 2])):
            messages.append({"role": "user", "content": words(3)})
            answer = words(4)
            if i % 7 == 3:
                answer = [{"type": "text", "text": word() + " "}, {"type": "python", "text": "2*3"},
                          {"type": "python_output", "text": "6"}, {"type": "text", "text": words(2)}]
            messages.append({"role": "assistant", "content": answer})
        conversations.append({"messages": messages})

    tree = ast.parse((CHECKOUT / "nanochat/tokenizer.py").read_text())
    names = next(n for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "SPECIAL_TOKENS")
    special = ast.literal_eval(names.value)
    own = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    render = next(n for n in own.body if isinstance(n, ast.FunctionDef) and n.name == "render_conversation")
    space = {"copy": __import__("copy")}
    exec(compile(ast.Module([render], []), "tokenizer.py", "exec"), space)

    class Tokenizer:
        render_conversation = space["render_conversation"]
        encode_special = lambda self, name: BOS + special.index(name)
        get_bos_token_id = lambda self: BOS
        encode = lambda self, text: list(text.encode())

    T, B = 96, 4
    function = next(n for n in ast.parse(SFT).body if isinstance(n, ast.FunctionDef) and n.name == "sft_data_generator_bos_bestfit")
    space = dict(args=types.SimpleNamespace(max_seq_len=T, device_batch_size=B, num_iterations=-1), torch=torch,
                 train_dataset=conversations, val_dataset=conversations, tokenizer=Tokenizer(), ddp_rank=0, ddp_world_size=1,
                 device="cpu", device_type="cpu", last_step=False, approx_progress=0.0, current_epoch=1)
    exec(compile(ast.Module([function], []), "chat_sft.py", "exec"), space)
    loader, rows = space["sft_data_generator_bos_bestfit"]("train"), []
    for inputs, targets in loader:
        if space["current_epoch"] > 1:  # from here on conversations come a second time
            break
        rows += [[x, y] for x, y in zip(inputs.tolist(), targets.tolist())]
    lengths = [len(Tokenizer().render_conversation(c)[0]) for c in conversations]
    assert max(lengths) <= T, max(lengths)
    return {"special_tokens": special, "conversations": conversations, "seq_len": T, "rows": rows}


def mixture_order():
    """Which document comes when: nanochat's TaskMixture over tasks whose rows are shuffled as its datasets are."""
    from tasks.common import HubDataset, Task, TaskMixture

    class Numbers(Task):
        def __init__(self, name, size):
            super().__init__()
            self.rows = HubDataset(pa.table({"row": [f"{name}{i}" for i in range(size)]})).shuffle(seed=42)

        def num_examples(self):
            return len(self.rows)

        def get_example(self, index):
            return self.rows[index]["row"]

    tasks = [("a", 300)] + [("b", 70)] * 3 + [("c", 1)] + [("d", 33)] * 2
    mixture = TaskMixture([Numbers(*task) for task in tasks])
    return {"sources": [["a", 300, 1], ["b", 70, 3], ["c", 1, 1], ["d", 33, 2]], "order": [mixture[i] for i in range(len(mixture))]}


golden = {"depths": [depth_of(4), depth_of(12), depth_of(20), depth_of(26), depth_of(24, 8), depth_of(3)],
          "base": base_rows(), "sft": sft_rows(), "mixture": mixture_order()}
path = pathlib.Path(__file__).parent / "nanochat.json"
path.write_text("{\n" + ",\n".join(f' "{name}": ' + json.dumps(value, separators=(",", ":")) for name, value in golden.items()) + "\n}\n")
for depth in golden["depths"]:
    print({k: v for k, v in depth.items() if k != "at"})
print(len(golden["base"]["rows"]), "rows of base,", len(golden["sft"]["rows"]), "of SFT,", path.stat().st_size, "bytes")
