#!/usr/bin/env python3
"""The side of transformers in journey 03.
usage: hugging_face.py make TOKENIZER_FOLDER FOLDER | compare FOLDER OUTPUT_OF_GENERATE"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def make(tokenizer_folder, folder):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{tokenizer_folder}/tokenizer.json", eos_token="<|im_end|>")
    torch.manual_seed(14)
    config = Qwen3Config(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True)
    Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def compare(folder, output):
    """16 greedy tokens, or up to a stop token, of transformers and of `tightloop generate --json` on the same folder."""
    ours = json.load(open(output))["results"][0]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer(ours["prompt"], return_tensors="pt", add_special_tokens=False)
    theirs = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    ids = theirs[0, prompt["input_ids"].shape[1]:].tolist()
    ids = ids[:-1] if ids[-1] in model.generation_config.eos_token_id else ids
    print("tightloop:   ", ours["ids"])
    print("transformers:", ids)
    print("chat template:", repr(tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)))
    sys.exit(ids != ours["ids"])


{"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
