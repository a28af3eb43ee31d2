#!/usr/bin/env python3
"""Conversations as MiniMind's own SFTDataset gives them: ids and labels, its random shares set to 0 and to 1.

usage: .deps/peers/bin/python tests/golden/make_minimind_sft.py MINIMIND DATA OUTPUT
       MINIMIND  a checkout of github.com/jingyaogong/minimind; it needs the package `datasets`
       DATA      holds tokenizers/minimind
"""
import json
import pathlib
import random
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

LENGTH = 160


def records():
    pick = random.Random(5)
    words = ["Hi", "two", "七", "a\nb", "\n", " x ", "<think>", "</think>", "<|im_end|>", "schön", "<tool_call>", "?", "\n\n"]
    text = lambda: pick.choice(["", " ", "\n"]).join(pick.choice(words) for _ in range(pick.randrange(1, 6))) + "!"
    tools = [{"type": "function", "function": {"name": "weather", "description": "Wetter", "parameters": {"type": "object", "properties": {}}}}]
    for index in range(40):
        talk = []
        with_tools = index % 3 == 0
        if with_tools or pick.random() < 0.4:
            talk.append({"role": "system", "content": text()})
            if with_tools:
                talk[0]["tools"] = json.dumps(tools, ensure_ascii=False)
        for _ in range(pick.choice([1, 1, 2, 3])):
            talk.append({"role": "user", "content": text()})
            if with_tools and pick.random() < 0.6:
                calls = [{"name": "weather", "arguments": {"city": text()}} for _ in range(pick.choice([1, 2]))]
                talk.append({"role": "assistant", "content": pick.choice(["", text()]), "tool_calls": json.dumps(calls, ensure_ascii=False)})
                talk.extend({"role": "tool", "content": text()} for _ in calls)
            answer = {"role": "assistant", "content": text()}
            if pick.random() < 0.5:
                answer["reasoning_content"] = pick.choice(["", text()])
            talk.append(answer)
        yield {"conversations": talk}


def main():
    minimind, data, output = map(pathlib.Path, sys.argv[1:4])
    sys.path.insert(0, str(minimind))
    from dataset import lm_dataset

    config = json.loads((data / "tokenizers/minimind/tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(data / "tokenizers/minimind/tokenizer.json"),
        **{name: config[name] for name in ("bos_token", "eos_token", "pad_token", "unk_token", "chat_template")},
    )
    lines = [json.dumps(record, ensure_ascii=False) for record in records()]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        samples = lm_dataset.SFTDataset(file.name, tokenizer, max_length=LENGTH)
        before = lm_dataset.pre_processing_chat, lm_dataset.post_processing_chat
        prompts = []
        lm_dataset.random.choice = lambda prompts_: prompts.append(prompts_) or prompts_[0]
        result = {"length": LENGTH, "records": lines, "shares": {}}
        for share in (0, 1):
            lm_dataset.random.random = lambda share=share: 1.0 - share if share == 0 else 0.0
            lm_dataset.pre_processing_chat = lambda talk, share=share: before[0](talk, add_system_ratio=share)
            lm_dataset.post_processing_chat = lambda text, share=share: before[1](text, empty_think_ratio=share)
            rows = []
            for index in range(len(lines)):
                ids, labels = samples[index]
                ids, labels = ids.tolist(), labels.tolist()
                while ids and ids[-1] == tokenizer.pad_token_id:
                    ids.pop()
                mask = [int(label != -100) for label in labels[: len(ids)]]
                rows.append({"ids": ids, "mask": "".join(map(str, mask))})
            result["shares"][str(share)] = rows
        result["system_prompt"] = prompts[0][0]
    output.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
