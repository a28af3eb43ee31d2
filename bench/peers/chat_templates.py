#!/usr/bin/env python3
"""Chat templates: ours and transformers' on the same conversations, alternately.

usage: .deps/peers/bin/python bench/peers/chat_templates.py TEMPLATE CHATS.jsonl [ROUNDS]
       TEMPLATE: a .jinja file, or a tokenizer_config.json; CHATS: JSON lines with `messages`
"""
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import time

from transformers.utils import chat_template_utils

THREADS = 2


def main():
    path, chats = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    text = pathlib.Path(path).read_text(encoding="utf-8")
    template = json.loads(text)["chat_template"] if path.endswith(".json") else text
    with open(chats, encoding="utf-8") as lines:
        talks = [json.loads(line)["messages"] for line in lines]
    compiled = chat_template_utils._cached_compile_jinja_template(template)
    render = lambda talk: compiled.render(messages=talk, tools=None, documents=None, add_generation_prompt=False)
    program = pathlib.Path(__file__).parents[2] / "build/tightloop"
    command = [program, "bench", "chat", "--template", path, "--input", chats, "--threads", str(THREADS), "--seconds", "2", "--json"]
    found = {"transformers, one thread": [], "transformers, two threads": [], "interpreter": [], "built-in form": []}
    for _ in range(rounds):
        began, cpu = time.perf_counter(), time.process_time()
        for talk in talks:
            render(talk)
        cpu = 1e6 * (time.process_time() - cpu) / len(talks)
        found["transformers, one thread"].append((len(talks) / (time.perf_counter() - began), cpu))
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            began, cpu = time.perf_counter(), time.process_time()
            for part in [pool.submit(lambda part=part: [render(talk) for talk in part]) for part in (talks[::2], talks[1::2])]:
                part.result()
            cpu = 1e6 * (time.process_time() - cpu) / len(talks)
            found["transformers, two threads"].append((len(talks) / (time.perf_counter() - began), cpu))
        ours = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        for name, key in (("interpreter", "interpreter"), ("built-in form", "built_in")):
            if key in ours:
                found[name].append((ours[key]["conversations_s"], ours[key]["cpu_us"]))
    theirs = max(statistics.median(speed for speed, _ in found[name]) for name in found if name.startswith("transformers"))
    least = min(statistics.median(cpu for _, cpu in found[name]) for name in found if name.startswith("transformers"))
    for name, figures in found.items():
        if figures:
            speed, cpu = (statistics.median(column) for column in zip(*figures))
            print(f"{name:26} {speed:10,.0f} conversations/s {speed / theirs:6.1f} x    {cpu:6.2f} us of CPU time {least / cpu:6.1f} x")


if __name__ == "__main__":
    main()
