#!/usr/bin/env python3
"""Random conversations, rendered by transformers with chat templates of others.

Writes one line for each: the template's file, the variables as JSON, and the text or the error.

usage: .deps/peers/bin/python tests/golden/make_chats.py FOLDER_OF_TEMPLATES OUTPUT [COUNT [SEED]]
"""
import datetime
import json
import pathlib
import random
import sys

from transformers.utils import chat_template_utils

NOW = 1731900000  # what strftime_now says, here and in the test


class FrozenTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW)


chat_template_utils.datetime = FrozenTime

WORDS = (
    ["Hi", "What is 2+2?", "the weather", "in Paris", "schön", "日本語", "😀👍🏽", "<|im_end|>", "<|eot_id|>", "</think>"]
    + ["<think>", "{{ x }}", "{% if %}", '"quoted"', "it's", "a\nb", "\n\n", " ", "\t", "<b>&amp;</b>", "\u00a0", "ẞ"]
    + ["<tool_call>", "[INST]", "<start_of_turn>", "\r\n", "\u200b", "1e5", "null", "\\n", "%s", "e\u0301", "<|call|>"]
)
NAMES = ["get_weather", "search", "f", "python", "browser", "calc-1"]
SCHEMAS = [
    {"type": "string", "description": "Where"},
    {"type": "integer"},
    {"type": "number", "default": 1.5},
    {"type": "boolean", "default": True},
    {"type": "string", "enum": ["a", "b"], "default": "a"},
    {"type": "array", "items": {"type": "string"}},
    {"type": ["string", "null"]},
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    {"type": "string", "nullable": True},
    {"oneOf": [{"type": "string"}, {"type": "number", "description": "n"}]},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "description": "d"},
    {},
]


class Conversations:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def text(self):
        pick = self.random.choice
        text = pick(["", " "]).join(pick(WORDS) for _ in range(pick([0, 1, 1, 2, 3, 6])))
        if self.chance(0.1):
            text = pick(["<think>", "", "\n"]) + self.random.choice(WORDS) + pick(["</think>", "</think>\n\n"]) + text
        return pick(["", "", "", " ", "\n"]) + text + pick(["", "", "", " ", "\n"])

    def value(self, depth=0):
        kinds = [None, True, False, 0, -3, 12345678901, 1.0, 0.1, 1e-7, 1e20, -2.5]
        roll = self.random.random()
        if roll < 0.5 or depth > 2:
            return self.text() if self.chance(0.6) else self.random.choice(kinds)
        if roll < 0.75:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(["a", "b", "q", "ключ", "x y"]): self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def content(self):
        if self.chance(0.88):
            return self.text()
        if self.chance(0.3):
            return self.random.choice([None, "", 5, {"a": 1}, []])
        return [self.random.choice([{"type": "text", "text": self.text()}, {"type": "image"}, "plain"]) for _ in range(2)]

    def tool(self):
        names = self.random.sample(["city", "unit", "n", "flag", "xs"], self.random.randrange(4))
        parameters = {"type": "object", "properties": {name: self.random.choice(SCHEMAS) for name in names}}
        if self.chance(0.7):
            parameters["required"] = names[:1]
        function = {"name": self.random.choice(NAMES), "description": self.text(), "parameters": parameters}
        if self.chance(0.2):
            function["return"] = {"type": "string"}
        if self.chance(0.05):
            del function["description"]
        return {"type": "function", "function": function} if self.chance(0.9) else function

    def call(self):
        arguments = {name: self.value() for name in self.random.sample(["city", "unit", "n"], self.random.randrange(3))}
        function = {"name": self.random.choice(NAMES), "arguments": arguments if self.chance(0.7) else json.dumps(arguments)}
        call = {"type": "function", "function": function} if self.chance(0.9) else function
        if self.chance(0.6):
            call["id"] = self.random.choice(["abcdefghi", "call_1", "123456789", ""])
        return call

    def assistant(self, tools):
        message = {"role": "assistant", "content": self.content()}
        if self.chance(0.25):
            message[self.random.choice(["reasoning_content", "thinking", "reasoning"])] = self.text()
        if self.chance(0.45 if tools else 0.05):
            message["tool_calls"] = [self.call() for _ in range(self.random.choice([1, 1, 1, 2, 0]))]
            if self.chance(0.3):
                message.pop("content")
        return message

    def messages(self, tools):
        result = []
        if self.chance(0.5):
            result.append({"role": self.random.choice(["system"] * 6 + ["developer"]), "content": self.content()})
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 3, 4])):
            result.append({"role": "user", "content": self.content()})
            if self.chance(0.85):
                result.append(self.assistant(tools))
                for call in result[-1].get("tool_calls") or []:
                    reply = {"role": "tool", "content": self.content() if self.chance(0.9) else self.value()}
                    if self.chance(0.6):
                        reply["tool_call_id"] = call.get("id", "abcdefghi")
                    if self.chance(0.6):
                        reply["name"] = self.random.choice(NAMES)
                    result.append(reply)
                if self.chance(0.5) and result[-1]["role"] == "tool":
                    result.append(self.assistant(tools))
        if self.chance(0.06) and result:
            self.random.shuffle(result)
        if self.chance(0.04) and result:
            self.random.choice(result).pop(self.random.choice(["role", "content"]), None)
        if self.chance(0.04):
            result.append({"role": self.random.choice(["ipython", "function", "observation", "Weird"]), "content": self.text()})
        return result

    def record(self):
        tools = [self.tool() for _ in range(self.random.choice([0, 1, 1, 2]))] if self.chance(0.4) else None
        record = {"messages": self.messages(tools), "tools": tools, "documents": None}
        record["add_generation_prompt"] = self.chance(0.5)
        if self.chance(0.15):
            record["documents"] = [{"title": self.text(), "text": self.text()} for _ in range(self.random.randrange(3))]
        for name, values in {
            "enable_thinking": [True, False],
            "thinking": [True, False],
            "thinking_effort": ["low"],
            "reasoning_effort": ["high", "low"],
            "model_identity": ["You are X."],
            "builtin_tools": [["browser"], ["python"], ["browser", "python"]],
            "custom_instructions": ["Be short."],
            "xml_tools": [True, False],
            "python_tools": [True, False],
            "system_message": ["S"],
            "date_string": ["26 Jul 2024"],
            "tools_in_user_message": [True, False],
            "controls": [{"length": "short", "originality": "abstractive"}],
            "safety_mode": ["strict"],
            "citation_mode": ["fast"],
        }.items():
            if self.chance(0.12):
                record[name] = self.random.choice(values)
        if self.chance(0.9):
            record |= {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        return record


def main():
    folder, output = map(pathlib.Path, sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    conversations = Conversations(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    with output.open("w", encoding="utf-8") as lines:
        for file in sorted(folder.glob("*.jinja")):
            template = file.read_text(encoding="utf-8")
            compiled = chat_template_utils._cached_compile_jinja_template(template)
            for _ in range(count):
                record = json.loads(json.dumps(conversations.record()))
                case = {"file": file.name, "record": json.dumps(record, ensure_ascii=False)}
                try:
                    case["text"] = compiled.render(**record)
                except Exception as error:
                    case["error"] = f"{type(error).__name__}: {error}"
                lines.write(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
