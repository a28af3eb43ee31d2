"""What the gguf package reads of a file that we wrote: its settings, shapes, types and values, against the folder of it.

usage: gguf_reader.py FILE.gguf FOLDER    FOLDER is our Hugging Face export of the same weights in fp32
"""
import json
import pathlib
import sys

import gguf
import numpy
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file

path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
reader = gguf.GGUFReader(path)
config = json.loads((folder / "config.json").read_text())
weights = load_file(folder / "model.safetensors")
fields = {name: field.contents() for name, field in reader.fields.items()}
architecture = fields["general.architecture"]
kind = {0: "F32", 1: "F16", 7: "Q8_0", 32: "BF16"}[fields["general.file_type"]]
enum = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
heads = config.get("num_attention_heads", config.get("n_head"))
layers = config.get("num_hidden_layers", config.get("n_layer"))
key_heads = config.get("num_key_value_heads", heads)
width = config.get("hidden_size", config.get("n_embd"))


def check(name, value, expected):
    if value != expected:
        raise SystemExit(f"{name} is {value}, {expected} was expected")


check("version", fields["GGUF.version"], 3)
check("block_count", fields[f"{architecture}.block_count"], layers)
check("embedding_length", fields[f"{architecture}.embedding_length"], width)
check("context", fields[f"{architecture}.context_length"], config.get("max_position_embeddings", config.get("n_positions")))
check("heads", fields[f"{architecture}.attention.head_count"], heads)
check("feed-forward", fields[f"{architecture}.feed_forward_length"], config.get("intermediate_size", config.get("n_inner")))
check("tokens", len(fields["tokenizer.ggml.tokens"]), config["vocab_size"])
check("types", len(fields["tokenizer.ggml.token_type"]), config["vocab_size"])
check("end", fields["tokenizer.ggml.eos_token_id"], config["eos_token_id"])
check("add_bos", fields["tokenizer.ggml.add_bos_token"], False)
if architecture != "gpt2":
    check("key heads", fields[f"{architecture}.attention.head_count_kv"], key_heads)
    check("head size", fields[f"{architecture}.attention.key_length"], config["head_dim"])
    check("theta", numpy.float32(fields[f"{architecture}.rope.freq_base"]), numpy.float32(config["rope_theta"]))
if architecture == "qwen3moe":
    check("experts", fields["qwen3moe.expert_count"], config["num_experts"])
    check("experts used", fields["qwen3moe.expert_used_count"], config["num_experts_per_tok"])

# Names by the package's own table; experts one by one, as transformers has them, are put together here.
names = gguf.get_tensor_name_map(enum, layers)
expected = {}
for name, value in weights.items():
    if ".experts." in name:
        continue
    stem, ending = name.rsplit(".", 1)
    key = names.get_name(stem)
    if architecture == "gpt2" and value.ndim == 2 and stem.startswith("transformer.h."):
        value = value.T
    if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
        count = heads if stem.endswith("q_proj") else key_heads
        value = value.reshape(count, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
    expected[f"{key}.{ending}"] = value
for layer in range(layers if architecture == "qwen3moe" else 0):
    for theirs, ours in (("gate", "ffn_gate_exps"), ("up", "ffn_up_exps"), ("down", "ffn_down_exps")):
        stack = [weights[f"model.layers.{layer}.mlp.experts.{e}.{theirs}_proj.weight"] for e in range(config["num_experts"])]
        expected[f"blk.{layer}.{ours}.weight"] = numpy.stack(stack)

if "rope_scaling" in config:  # as llama.cpp's converter works it out
    scaling, size = config["rope_scaling"], config["head_dim"]
    waves = 2 * numpy.pi * config["rope_theta"] ** (numpy.arange(0, size, 2) / size)
    share = (scaling["original_max_position_embeddings"] / waves - scaling["low_freq_factor"]) / (
        scaling["high_freq_factor"] - scaling["low_freq_factor"])
    share = numpy.clip(share, 0, 1)
    factors = numpy.array([tensor.data for tensor in reader.tensors if tensor.name == "rope_freqs.weight"][0])
    if not numpy.allclose(factors, 1 / (share + (1 - share) / scaling["factor"]), rtol=1e-6):
        raise SystemExit("rope_freqs.weight has other values")
    expected["rope_freqs.weight"] = factors

check("tensors", sorted(tensor.name for tensor in reader.tensors), sorted(expected))
types = gguf.GGMLQuantizationType
for tensor in reader.tensors:
    value = expected[tensor.name]
    plain = value.ndim == 1 or "ffn_gate_inp" in tensor.name or tensor.name == "position_embd.weight"
    check(f"type of {tensor.name}", tensor.tensor_type.name, "F32" if plain else kind)
    check(f"shape of {tensor.name}", tuple(int(size) for size in reversed(tensor.shape)), value.shape)
    check(f"offset of {tensor.name}", tensor.data_offset % 32, 0)
    if tensor.tensor_type == types.Q8_0:  # the package's own blocks, byte by byte
        if not numpy.array_equal(quantize(value, types.Q8_0), tensor.data):
            raise SystemExit(f"{tensor.name}: other blocks")
        continue
    read = dequantize(tensor.data, tensor.tensor_type).reshape(value.shape)
    wanted = value if plain else dequantize(quantize(value, tensor.tensor_type), tensor.tensor_type)
    if not numpy.array_equal(read, wanted):
        raise SystemExit(f"{tensor.name}: other values")
print(f"{architecture} {kind}: {len(reader.fields)} fields, {len(reader.tensors)} tensors agree")
