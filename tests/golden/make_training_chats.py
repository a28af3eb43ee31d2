#!/usr/bin/env python3
"""Conversations to train on, as transformers renders and tokenizes them, with what the assistant must produce.

Writes one line for each: the template, the record, the text of apply_chat_template, and by tokenizer the ids and a mask.
The mask is a slow reference: an assistant's turn is what the text of the conversation up to it has more than the text
of the conversation before it. Where templates write earlier turns otherwise once there are later ones, that cannot be
told and `mask` is left out.

usage: .deps/peers/bin/python tests/golden/make_training_chats.py DATA OUTPUT [COUNT [SEED]]
       DATA holds chat_templates/ and tokenizers/{gpt2,minimind}
"""
import json
import pathlib
import random
import re
import sys

from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers.utils import chat_template_utils

from make_chats import FrozenTime, WORDS

chat_template_utils.datetime = FrozenTime

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
THINKING = "<think>"


class Talks:
    """Conversations that most templates accept: the user and the assistant take turns, results follow calls."""

    def __init__(self, seed, template):
        self.random = random.Random(f"{seed} {len(template)}")
        self.thinks = bool(re.search(r"\breasoning_content\b", template))
        self.calls = bool(re.search(r"\btool_calls\b", template))
        self.tools = bool(re.search(r"\btools\b", template))
        self.system = "System role not supported" not in template

    def text(self, least=0):
        words = [self.random.choice(WORDS) for _ in range(self.random.choice([1, 2, 3, 6]))]
        text = self.random.choice(["", " "]).join(words)
        text = self.random.choice(["", "", "", " ", "\n", "\n\n"]) + text + self.random.choice(["", "", "", " ", "\n"])
        return text if text.strip() else "so " * (least or 1)

    def call(self):
        name = self.random.choice(["get_weather", "search", "f"])
        return {"type": "function", "id": "abcdefghi", "function": {"name": name, "arguments": {"city": self.text(), "n": 3}}}

    def record(self):
        roll = self.random.random
        messages = []
        record = {"messages": messages}
        if self.system and roll() < 0.5:
            messages.append({"role": "system", "content": self.text()})
        if self.tools and roll() < 0.3:
            function = {"name": "get_weather", "description": self.text(), "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}, "required": ["city"]}}
            record["tools"] = [{"type": "function", "function": function}]
        for _ in range(self.random.choice([1, 1, 2, 3])):
            messages.append({"role": "user", "content": self.text()})
            if self.calls and "tools" in record and roll() < 0.5:
                messages.append({"role": "assistant", "content": "", "tool_calls": [self.call()]})
                messages.append({"role": "tool", "content": self.text(), "tool_call_id": "abcdefghi", "name": "get_weather"})
            answer = {"role": "assistant", "content": self.text(1)}
            if self.thinks and roll() < 0.4:
                answer["reasoning_content"] = self.text()
            messages.append(answer)
        return record


def common(left, right):
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


def end_of(text, begin, end, is_token):
    turn = text[begin:end].rstrip(" \n\r\t")
    found = re.search(r"(<[^<>]{1,62}>|\[[^\[\]]{1,62}\])$", turn)
    if found and is_token(found.group(1)):
        return begin + len(turn)
    following = re.match(r"<[^<>]{1,62}>|\[[^\[\]]{1,62}\]", text[end:])
    return end + following.end() if following and is_token(following.group(0)) else end


def answers(render, record, text, is_token):
    """Spans of the text, or None where they cannot be told."""
    spans = []
    asks = render({"messages": [{"role": "user", "content": "x"}]}, True)
    asked = render({"messages": [{"role": "user", "content": "x"}]}, False)
    header = asks[len(asked):] if asks.startswith(asked) else ""
    header = header.split(THINKING)[0]
    for index, message in enumerate(record["messages"]):
        if message["role"] != "assistant":
            continue
        before = render(record | {"messages": record["messages"][:index]}, False)
        until = render(record | {"messages": record["messages"][: index + 1]}, False)
        if not text.startswith(before) or not text.startswith(until):
            return None
        begin = len(before) + common(text[len(before):len(until)], header)
        spans.append((begin, end_of(text, len(before), len(until), is_token)))
    return spans


def minimind_mask(ids, tokenizer):
    """MiniMind learns from its header to its end, found by ids, and the line end behind it."""
    header, end = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("<|im_start|>assistant\n", "<|im_end|>\n"))
    mask, at = [0] * len(ids), 0
    while at < len(ids):
        if ids[at:at + len(header)] != header:
            at += 1
            continue
        first = last = at + len(header)
        while last < len(ids) and ids[last:last + len(end)] != end:
            last += 1
        at = min(last + len(end), len(ids))
        mask[first:at] = [1] * (at - first)
    return mask


def main():
    data, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    gpt2 = ByteLevelBPETokenizer(str(data / "tokenizers/gpt2/vocab.json"), str(data / "tokenizers/gpt2/merges.txt"))
    gpt2.add_special_tokens(["<|endoftext|>"])
    tokenizers = {"gpt2": gpt2, "minimind": Tokenizer.from_file(str(data / "tokenizers/minimind/tokenizer.json"))}
    templates = {file.name: file.read_text(encoding="utf-8") for file in sorted((data / "chat_templates").glob("*.jinja"))}
    config = data / "tokenizers/minimind/tokenizer_config.json"
    templates["minimind"] = json.loads(config.read_text(encoding="utf-8"))["chat_template"]
    with output.open("w", encoding="utf-8") as lines:
        for name, template in templates.items():
            compiled = chat_template_utils._cached_compile_jinja_template(template)
            talks = Talks(seed, template)

            def render(record, asks):
                variables = {"tools": None, "documents": None} | TOKENS | record
                return compiled.render(**variables, add_generation_prompt=asks)

            for _ in range(count):
                record = talks.record()
                case = {"template": name, "record": json.dumps(record, ensure_ascii=False)}
                try:
                    text = render(record, False)
                except Exception as error:
                    case["error"] = f"{type(error).__name__}: {error}"
                    lines.write(json.dumps(case) + "\n")
                    continue
                case["text"] = text
                for kind, tokenizer in tokenizers.items():
                    encoding = tokenizer.encode(text, add_special_tokens=False)
                    found = {"ids": encoding.ids}
                    try:
                        spans = answers(render, record, text, lambda token: tokenizer.token_to_id(token) is not None)
                    except Exception:
                        spans = None
                    if name == "minimind":
                        found["mask"] = minimind_mask(encoding.ids, tokenizer)
                    elif spans is not None and "{% generation %}" not in template:
                        found["mask"] = [int(any(begin < last and first < end for begin, end in spans)) for first, last in encoding.offsets]
                    case[kind] = found
                lines.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
