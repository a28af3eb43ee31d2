#!/usr/bin/env python3
"""Loss curves of several runs as one SVG picture, which follows the reader's light or dark scheme.
usage: bench/plot_losses.py OUT.svg TITLE NAME=metrics.jsonl [NAME=metrics.jsonl ...]"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 300, 56, 36, 16, 40
COLORS = ["#3b6fd4", "#d4703b", "#2e9e6b", "#9b59b6"]


def curve(path):
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [(row["global_step"], row["training/loss"]) for row in rows if "training/loss" in row]


def main():
    out, title, *named = sys.argv[1:]
    curves = {name: curve(path) for name, path in (pair.split("=", 1) for pair in named)}
    steps = max(step for points in curves.values() for step, _ in points)
    losses = [loss for points in curves.values() for _, loss in points]
    low, high = math.log(min(losses)), math.log(max(losses))
    x = lambda step: LEFT + step / steps * (WIDTH - LEFT - RIGHT)
    y = lambda loss: TOP + (high - math.log(loss)) / (high - low) * (HEIGHT - TOP - BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" role="img" aria-label="{title}">',
        "<style>text{fill:#333}line{stroke:#ccc}@media(prefers-color-scheme:dark){text{fill:#ddd}line{stroke:#444}}</style>",
        f'<text x="{LEFT}" y="16" font-size="14">{title}</text>',
    ]
    for i in range(5):
        loss = math.exp(low + (high - low) * i / 4)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.3g}</text>')
        parts.append(f'<text x="{x(steps * i / 4):.1f}" y="{HEIGHT - 22}" text-anchor="middle">{steps * i // 4}</text>')
    for i, (name, points) in enumerate(curves.items()):
        color = COLORS[i % len(COLORS)]
        path = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5" stroke-opacity="0.8"/>')
        parts.append(f'<text x="{LEFT + 140 * i}" y="{HEIGHT - 6}" style="fill:{color}">{name}</text>')
    with open(out, "w") as picture:
        picture.write("\n".join(parts + ["</svg>"]) + "\n")


main()
