"""Makes optimizers.safetensors for tests/train/optimizer_test.cpp:

- muon.*: nanochat's own MuonAdamW, with the groups that its GPT.setup_optimizer makes, fed fixed gradients in fp32;
- adamw.*: torch's AdamW with clip_grad_norm_, 100 steps.

    .deps/peers/bin/python tests/golden/make_optimizers.py CHECKOUT_OF_NANOCHAT

nanochat at commit 92d63d4; nothing of it is copied.
"""
import os
import pathlib
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # its kernels as written, without a compiler
os.environ["NANOCHAT_DTYPE"] = "float32"
sys.path.insert(0, sys.argv[1])

import torch
from nanochat.optim import MuonAdamW
from safetensors.torch import save_file

STEPS, WIDTH, WEIGHT_DECAY = 12, 8, 0.28
# Ours -> shape. qkv is q (8 rows), k and v (4 each), gate_up two matrices of 10: nanochat has each by itself.
SHAPES = {
    "embedding": (7, 8), "resid_scale": (3,), "x0_scale": (3,), "smear_gate": (1, 8), "smear_scale": (1,), "backout_scale": (1,),
    "value_embedding.1": (7, 4), "blocks.0.qkv": (16, 8), "blocks.0.out": (8, 8), "blocks.0.gate_up": (20, 8),
    "blocks.0.down": (8, 10), "blocks.0.expert_down": (3, 8, 5), "head": (7, 8),
}
ROWS = {"blocks.0.qkv": [8, 4, 4], "blocks.0.gate_up": [10, 10]}


def pieces(name, tensor):
    if name == "blocks.0.expert_down":
        return list(tensor.unbind(0))
    return list(tensor.split(ROWS.get(name, tensor.shape[0])))


def muon(generator, out):
    weights = {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in SHAPES.items()}
    out.update({f"muon.start.{name}": value.clone() for name, value in weights.items()})
    parts = {name: [torch.nn.Parameter(piece.clone()) for piece in pieces(name, value)] for name, value in weights.items()}
    scale = (WIDTH / 768) ** -0.5

    def adamw(names, lr, betas, decay):
        params = [p for name in names for p in parts[name]]
        return dict(kind="adamw", params=params, lr=lr, betas=betas, eps=1e-10, weight_decay=decay)

    groups = [
        adamw(["head"], 0.008 * scale, (0.8, 0.96), 0.01),
        adamw(["embedding"], 0.3 * scale, (0.8, 0.995), 0.001),
        adamw(["value_embedding.1"], 0.3 * scale * 0.5, (0.8, 0.995), 0.01),
        adamw(["resid_scale"], 0.5 * 0.01, (0.8, 0.95), 0.05),
        adamw(["x0_scale"], 0.5, (0.96, 0.95), 0.0),
        adamw(["smear_gate", "smear_scale", "backout_scale"], 0.2, (0.8, 0.95), 0.0),
    ]
    matrices = [p for name in SHAPES if name.startswith("blocks.") for p in parts[name]]
    for shape in sorted({p.shape for p in matrices}):
        groups.append(dict(kind="muon", params=[p for p in matrices if p.shape == shape], lr=0.02, momentum=0.95, ns_steps=5,
                           beta2=0.9, weight_decay=0.0))
    optimizer = MuonAdamW(groups)
    initial = [group["lr"] for group in optimizer.param_groups]
    for step in range(STEPS):
        share, momentum, decay = 1 - 0.05 * step, 0.85 + 0.01 * step, 1 - step / STEPS
        for group, lr in zip(optimizer.param_groups, initial):
            group["lr"] = lr * share
            if group["kind"] == "muon":
                group["momentum"], group["weight_decay"] = momentum, WEIGHT_DECAY * decay
        for name, shape in SHAPES.items():
            gradient = torch.randn(shape, generator=generator) * 0.1
            out[f"muon.gradient.{step}.{name}"] = gradient.clone()
            for p, g in zip(parts[name], pieces(name, gradient)):
                p.grad = g.clone()
        optimizer.step()
    for name, shape in SHAPES.items():
        whole = [p.detach() for p in parts[name]]
        out[f"muon.end.{name}"] = torch.stack(whole) if len(shape) == 3 else torch.cat(whole)


def adamw(generator, out):
    steps = 100
    matrix, vector = torch.randn(6, 4, generator=generator), torch.randn(4, generator=generator)
    out.update({"adamw.start.matrix": matrix.clone(), "adamw.start.vector": vector.clone()})
    matrix, vector = torch.nn.Parameter(matrix), torch.nn.Parameter(vector)
    gradients = {"matrix": torch.randn(steps, 6, 4, generator=generator), "vector": torch.randn(steps, 4, generator=generator)}
    out.update({f"adamw.gradients.{name}": value for name, value in gradients.items()})
    optimizer = torch.optim.AdamW([{"params": [matrix], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}], lr=1e-2,
                                  betas=(0.9, 0.95), eps=1e-8)
    for step in range(steps):
        matrix.grad, vector.grad = gradients["matrix"][step] / 3, gradients["vector"][step] / 3
        torch.nn.utils.clip_grad_norm_([matrix, vector], 1.5)  # clips some steps and not others
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / 200)
        optimizer.step()
    out.update({"adamw.end.matrix": matrix.detach(), "adamw.end.vector": vector.detach()})


def main():
    torch.set_num_threads(1)
    generator, out = torch.Generator().manual_seed(5), {}
    muon(generator, out)
    adamw(generator, out)
    save_file(out, str(pathlib.Path(__file__).with_name("optimizers.safetensors")))


main()
