"""Writes tests/golden/scaler.json: what torch.amp.GradScaler does with an overflow planted every 7 steps.

    python tests/golden/make_scaler.py        (torch of tools/versions)
"""
import json
import pathlib

import torch

scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1.0)
scales, skipped, weights = [], [], []
for step in range(1, 201):
    loss = (weight * torch.arange(1.0, 5.0)).sum()
    scaler.scale(loss).backward()
    if step % 7 == 0:
        weight.grad[1] = float("inf")
    before = weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    skipped.append(bool(torch.equal(before, weight.detach())))
    scales.append(scaler.get_scale())
    weights.append(weight.detach()[0].item())
path = pathlib.Path(__file__).with_name("scaler.json")
path.write_text(json.dumps({"scales": scales, "skipped": skipped, "weights": weights}) + "\n")
