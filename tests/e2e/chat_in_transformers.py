"""Greedy conversations with an exported chat model, by transformers and by our program: the same texts, the same ends.

usage: chat_in_transformers.py TIGHTLOOP RUN EXPORT [COUNT]

Of each conversation transformers renders the turns with the exported template and answers them one after another. Our
program must answer the same lines with the same text (chat), continue the same prompts by the same ids and end where
transformers ends (generate --json), and render the prompts of some conversations to the same text and ids (data render,
tokenizer encode).
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MOST = 32  # tokens of an answer
WORDS = ["chir", "bos", "stone", "tree", "aa", "window", "o", "mirror", "lamp", "noon"]
RESET = "(a new conversation)\n"  # what chat answers to /reset
program, run, export = sys.argv[1:4]
torch.set_num_threads(1)
count = int(sys.argv[4]) if len(sys.argv) > 4 else 20
tokenizer = AutoTokenizer.from_pretrained(export)
model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32).eval()


def tightloop(*arguments, **more):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.stderr.decode()}")
    return done.stdout.decode()


def conversation(i):
    """One to three questions, some of odd text, and a system prompt in every third conversation."""
    questions = []
    for turn in range(1 + i % 3):
        word = WORDS[(3 * i + turn) % len(WORDS)]
        odd = [f"How many o are in the word {word}?", f"  Hi, {word}! é "][i % 2]
        questions.append(odd if (i + turn) % 3 == 2 else f"Spell the word: {word}")
    return questions, "Answer in one line." if i % 3 == 0 else None


def answer(messages):
    """What transformers makes of a conversation: the prompt's text and ids, the answer's ids and whether it ended."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) + MOST <= model.config.max_position_embeddings, "chat would leave out older turns"
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                              max_new_tokens=MOST, do_sample=False)[0, len(ids):].tolist()
    stops = model.generation_config.eos_token_id
    ended = bool(made) and made[-1] in stops
    return {"text": text, "prompt": ids, "ids": made[:-1] if ended else made, "end": "stop" if ended else "length"}


def compare_chats(chats, system):
    """Conversations one after another, as (questions, answers), in one process of ours: the ones that differ."""
    more = ["--system", system] if system else []
    lines = "".join("".join(question + "\n" for question in questions) + "/reset\n" for questions, _ in chats)
    ours = tightloop("chat", "--run", run, "--temperature", 0, "--max-tokens", MOST, *more, input=lines.encode())
    theirs = ["".join(answer + "\n" for answer in answers) for _, answers in chats]
    ours = ours.split(RESET)[:-1]
    assert len(ours) == len(theirs), ours
    return [f"{a!r}\n  ours: {b!r}" for a, b in zip(theirs, ours) if a != b]


def main():
    asked, last, chats = [], [], {}
    for i in range(count):
        questions, system = conversation(i)
        messages = [{"role": "system", "content": system}] if system else []
        answers = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            asked.append(answer(messages) | {"messages": list(messages)})
            answers.append(tokenizer.decode(asked[-1]["ids"], skip_special_tokens=False))
            messages.append({"role": "assistant", "content": answers[-1]})
        last.append(asked[-1])
        chats.setdefault(system, []).append((questions, answers))
    differences = [difference for system, some in chats.items() for difference in compare_chats(some, system)]
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"ids": one["prompt"]}) + "\n" for one in asked))
        made = json.loads(tightloop("generate", "--run", run, "--prompts", prompts, "--temperature", 0, "--max-tokens", MOST,
                                    "--json"))
    for one in last[::4]:
        rendered = tightloop("data", "render", "--template", export, "--add-generation-prompt",
                             input=json.dumps({"messages": one["messages"]}).encode())
        if rendered != one["text"]:
            differences.append(f"prompt {one['text']!r}\n  ours: {rendered!r}")
        ids = json.loads(tightloop("tokenizer", "encode", "--special", "parse", "--tokenizer", run, input=rendered.encode()))
        if ids != one["prompt"]:
            differences.append(f"ids of {one['text']!r}: {one['prompt']}\n  ours: {ids}")
    for one, ours in zip(asked, made["results"], strict=True):
        if (ours["ids"], ours["end"]) != (one["ids"], one["end"]):
            differences.append(f"answer to {one['text']!r}: {one['ids']} {one['end']}\n  ours: {ours['ids']} {ours['end']}")
    print("\n".join(differences))
    ends = sum(one["end"] == "stop" for one in asked)
    print(f"{count} conversations, {len(asked)} answers, {ends} of them ended by the model, {len(differences)} differences")
    sys.exit(bool(differences) or ends == 0)


main()
