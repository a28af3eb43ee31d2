#!/usr/bin/env python3
"""Weights that travel: tiny random models of every family, made by transformers, go through our program and back.

    .deps/peers/bin/python tools/compare_transformers.py [--program build/tightloop] [--keep FOLDER] [FAMILY...]

For each family: transformers saves a folder, we import and export it; the tensors must be the same bytes, the export must
load in transformers, its loss must be ours (`tightloop eval --model`), and 64 greedy tokens must be the same text.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEXT = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, lets it be."
PROMPT = "The quick brown"


def bytes_tokenizer(folder):
    """One token a byte and an end of text: the same text in both programs without any training."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.save_pretrained(folder)
    return len(alphabet)


def make_model(family, end, seed):
    common = dict(vocab_size=end + 1, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=256, eos_token_id=end, bos_token_id=None,
                  initializer_range=0.2)
    if family == "gpt2":
        config = transformers.GPT2Config(vocab_size=end + 1, n_embd=64, n_layer=3, n_head=4, n_positions=256,
                                         eos_token_id=end, bos_token_id=None, initializer_range=0.2)
    elif family == "llama":
        config = transformers.LlamaConfig(**common, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
    elif family == "qwen2":
        config = transformers.Qwen2Config(**common, tie_word_embeddings=True)
    elif family == "qwen3":
        config = transformers.Qwen3Config(**common, head_dim=32)
    else:
        config = transformers.Qwen3MoeConfig(**common, head_dim=32, moe_intermediate_size=48, num_experts=4,
                                             num_experts_per_tok=2, norm_topk_prob=True)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # biases and norms too, so that a swap shows
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def tensors_of(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(str(file), "pt") as opened:
            for name in opened.keys():
                tensors[name] = opened.get_tensor(name)
    return tensors


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}{done.stdout}")
    return done.stdout


def loss_of(model, ids):
    with torch.no_grad():
        logits = model(ids[None]).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, ids[1:]).item()


def greedy(model, prompt, end):
    with torch.no_grad():
        return model.generate(prompt[None], max_new_tokens=64, do_sample=False, pad_token_id=end)[0][len(prompt):]


def lasting_model(family, end, dtype, prompt):
    """The first random model whose greedy text goes on for all 64 tokens."""
    for seed in range(1, 100):
        model = make_model(family, end, seed).to(dtype)
        if len(greedy(model.float(), prompt, end)) == 64 and end not in greedy(model, prompt, end):
            return model.to(dtype)
    raise RuntimeError("every random model ends its text at once")


def check(family, dtype, program, folder):
    theirs, ours = folder / "theirs", folder / "ours"
    theirs.mkdir(parents=True)
    end = bytes_tokenizer(theirs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    prompt = torch.tensor(tokenizer(PROMPT, add_special_tokens=False)["input_ids"])
    model = lasting_model(family, end, dtype, prompt)
    model.save_pretrained(theirs)
    run(program, "export", "--model", theirs, "--to", ours)

    before, after = tensors_of(theirs), tensors_of(ours)
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, tensor in before.items():
        same = tensor.dtype == after[name].dtype and torch.equal(
            tensor.contiguous().view(torch.uint8), after[name].contiguous().view(torch.uint8))
        assert same, f"{name} differs"

    loaded = transformers.AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(ours)
    ids = torch.tensor(tokenizer(TEXT, add_special_tokens=False)["input_ids"])
    (folder / "text.txt").write_text(TEXT)
    report = json.loads(run(program, "eval", "--model", ours, "--input", folder / "text.txt", "--device", "cpu", "--json"))
    expected = loss_of(loaded, ids)
    assert report["tokens"] == len(ids) - 1, report
    difference = abs(report["loss"] - expected) / expected
    assert difference < 1e-5, f"loss {report['loss']} instead of {expected}"

    made = greedy(loaded, prompt, end)
    text = tokenizer.decode(made, skip_special_tokens=True).encode("utf-8", "replace")
    printed = subprocess.run([program, "generate", "--model", str(ours), "--prompt", PROMPT, "--temperature", "0",
                              "--max-tokens", "64", "--device", "cpu"], capture_output=True, check=True).stdout
    printed = printed.removeprefix(PROMPT.encode()).removesuffix(b"\n").decode("utf-8", "replace").encode()
    assert printed == text, f"{printed!r} instead of {text!r}"
    print(f"{family:10} {str(dtype)[6:]:9} {len(before):4} tensors the same bytes, loss {expected:.6f} "
          f"(relative difference {difference:.1e}), {len(made)} greedy tokens the same")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=["gpt2", "llama", "qwen2", "qwen3", "qwen3_moe"])
    parser.add_argument("--program", default="build/tightloop")
    parser.add_argument("--keep", help="folder for the models; default: a temporary one")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(options.keep or temporary)
        for family in options.families:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                try:
                    check(family, dtype, options.program, root / f"{family}-{str(dtype)[6:]}")
                except (AssertionError, RuntimeError) as error:
                    failed += 1
                    print(f"{family} {dtype}: {error}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
