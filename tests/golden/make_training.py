"""Makes training.safetensors: twenty training steps of a small decoder in plain PyTorch, for tests/train/golden_test.cpp.

    .deps/peers/bin/python tests/golden/make_training.py

Everything is spelled out in elementary operations on purpose: it is the reference. fp32, AdamW, clipping at 0.5,
two micro-batches a step, one division by the number of supervised tokens of the step.
"""
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

V, D, L, H, K, FFN, EPS, THETA = 64, 32, 2, 4, 2, 64, 1e-6, 10000.0
STEPS, ACCUMULATE, B, T = 20, 2, 4, 16
LR, WARMUP, MIN_LR, DECAY, BETAS, ADAM_EPS, CLIP = 1e-2, 5, 0.1, 0.1, (0.9, 0.95), 1e-8, 0.5
IGNORE = -100


def make_weights(generator):
    def normal(*shape, std):
        return torch.randn(*shape, generator=generator) * std

    weights = {"embedding": normal(V, D, std=0.2)}
    for layer in range(L):
        block = {
            "attention_norm": 1 + normal(D, std=0.1),
            "qkv": normal((H + 2 * K) * (D // H), D, std=0.2),
            "out": normal(D, D, std=0.1),
            "ffn_norm": 1 + normal(D, std=0.1),
            "gate_up": normal(2 * FFN, D, std=0.2),
            "down": normal(D, FFN, std=0.1),
        }
        weights.update({f"blocks.{layer}.{name}": value for name, value in block.items()})
    weights["final_norm"] = 1 + normal(D, std=0.1)
    weights["head"] = normal(V, D, std=0.2)
    return weights


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rotate(x):  # (B, T, heads, D / H): element i turns with element i + half
    half = x.shape[-1] // 2
    frequency = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().float()[:, None, :], angle.sin().float()[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(w, ids):
    x = w["embedding"][ids]
    size = D // H
    mask = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)
    for layer in range(L):
        p = {name.split(".")[2]: value for name, value in w.items() if name.startswith(f"blocks.{layer}.")}
        qkv = (norm(x, p["attention_norm"]) @ p["qkv"].T).view(*ids.shape, H + 2 * K, size)
        q, k, v = rotate(qkv[:, :, :H]), rotate(qkv[:, :, H:H + K]), qkv[:, :, H + K:]
        k, v = (t.repeat_interleave(H // K, dim=2) for t in (k, v))
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(size) + mask
        y = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).reshape(*ids.shape, D)
        x = x + y @ p["out"].T
        gate, up = (norm(x, p["ffn_norm"]) @ p["gate_up"].T).chunk(2, -1)
        x = x + (gate * torch.sigmoid(gate) * up) @ p["down"].T
    return norm(x, w["final_norm"]) @ w["head"].T


def rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    share = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    return LR * (MIN_LR + (1 - MIN_LR) * share)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(20)
    weights = make_weights(generator)
    out = {f"start.{name}": value.clone() for name, value in weights.items()}
    inputs = torch.randint(0, V, (STEPS, ACCUMULATE, B, T), generator=generator)
    targets = (inputs * 7 + 3) % V  # something that can be learned
    masked = torch.rand(targets.shape, generator=generator) < 0.3
    targets[masked] = IGNORE

    for value in weights.values():
        value.requires_grad_()
    matrices = [value for value in weights.values() if value.dim() >= 2]
    vectors = [value for value in weights.values() if value.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=ADAM_EPS)
    losses, norms = [], []
    for step in range(STEPS):
        count = (targets[step] != IGNORE).sum()
        total = 0.0
        for micro in range(ACCUMULATE):
            logits = forward(weights, inputs[step, micro])
            loss = F.cross_entropy(logits.view(-1, V), targets[step, micro].view(-1), ignore_index=IGNORE, reduction="sum")
            (loss / count).backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = rate(step + 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total / count.item())
    out.update({f"end.{name}": value.detach().clone() for name, value in weights.items()})
    out.update(inputs=inputs.to(torch.int32), targets=targets.to(torch.int32), losses=torch.tensor(losses, dtype=torch.float64),
               norms=torch.tensor(norms, dtype=torch.float64))
    save_file(out, str(pathlib.Path(__file__).with_name("training.safetensors")))
    print("losses:", " ".join(f"{loss:.5f}" for loss in losses))


main()
