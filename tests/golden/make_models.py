"""Makes models.safetensors: tiny random models of every family as other libraries compute them, for
tests/model/golden_test.cpp.

    .deps/peers/bin/python tests/golden/make_models.py PATH_OF_NANOCHAT PATH_OF_MINIMIND

gpt2, llama, qwen2, qwen3 and qwen3_moe come from transformers, the other two from checkouts of nanochat (92d63d4) and
MiniMind (d65ef2c). For each case the file holds the weights under our names, ids, logits and the gradients of all weights
of loss = mean cross entropy of the next token (+ MiniMind's balance loss). fp32 on the CPU. Sizes are in the
metadata, as settings of the section "model".
"""
import json
import os
import pathlib
import sys

os.environ["NANOCHAT_DTYPE"] = "float32"

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

B, T, V = 2, 16, 48


def randomise(model, seed):
    """Everything contributes: no zeros, no ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            is_scale = "norm" in name and name.endswith("weight") or ".ln_" in name and name.endswith("weight") or "resid_lambdas" in name
            p.copy_(1 + 0.1 * noise if is_scale else 0.2 * noise)


def join(parts):
    return torch.cat(parts, 0)


def gpt2(state):
    """Their linear layers are (in, out)."""
    out = {"embedding": state["transformer.wte.weight"], "positions": state["transformer.wpe.weight"]}
    names = {"ln_1.weight": "attention_norm", "ln_1.bias": "attention_norm_bias", "attn.c_attn.weight": "qkv",
             "attn.c_attn.bias": "qkv_bias", "attn.c_proj.weight": "out", "attn.c_proj.bias": "out_bias",
             "ln_2.weight": "ffn_norm", "ln_2.bias": "ffn_norm_bias", "mlp.c_fc.weight": "up", "mlp.c_fc.bias": "up_bias",
             "mlp.c_proj.weight": "down", "mlp.c_proj.bias": "down_bias"}
    for theirs, value in state.items():
        if theirs.startswith("transformer.h."):
            layer, rest = theirs[len("transformer.h."):].split(".", 1)
            is_linear = rest.endswith("weight") and "ln_" not in rest
            out[f"blocks.{layer}.{names[rest]}"] = value.T if is_linear else value
    out["final_norm"], out["final_norm_bias"] = state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]
    return out


def llama(state):
    """llama, qwen2, qwen3, qwen3_moe and MiniMind, whose names are the same."""
    out = {"embedding": state["model.embed_tokens.weight"], "final_norm": state["model.norm.weight"]}
    layers = 1 + max(int(name.split(".")[2]) for name in state if name.startswith("model.layers."))
    for layer in range(layers):
        get = lambda name: state.get(f"model.layers.{layer}.{name}")
        ours = {"attention_norm": get("input_layernorm.weight"), "ffn_norm": get("post_attention_layernorm.weight"),
                "qkv": join([get(f"self_attn.{x}_proj.weight") for x in "qkv"]), "out": get("self_attn.o_proj.weight"),
                "q_norm": get("self_attn.q_norm.weight"), "k_norm": get("self_attn.k_norm.weight"),
                "down": get("mlp.down_proj.weight"), "router": get("mlp.gate.weight"),
                "expert_gate_up": get("mlp.experts.gate_up_proj"), "expert_down": get("mlp.experts.down_proj")}
        if get("self_attn.q_proj.bias") is not None:
            ours["qkv_bias"] = join([get(f"self_attn.{x}_proj.bias") for x in "qkv"])
        if get("mlp.gate_proj.weight") is not None:
            ours["gate_up"] = join([get("mlp.gate_proj.weight"), get("mlp.up_proj.weight")])
        if get("mlp.experts.0.down_proj.weight") is not None:  # MiniMind keeps a module for each expert
            experts = [name for name in state if name.startswith(f"model.layers.{layer}.mlp.experts.") and "down_proj" in name]
            part = lambda e, name: get(f"mlp.experts.{e}.{name}_proj.weight")
            count = range(len(experts))
            ours["expert_gate_up"] = torch.stack([join([part(e, "gate"), part(e, "up")]) for e in count])
            ours["expert_down"] = torch.stack([part(e, "down") for e in count])
        out.update({f"blocks.{layer}.{name}": value for name, value in ours.items() if value is not None})
    if "lm_head.weight" in state:
        out["head"] = state["lm_head.weight"]
    return out


def nanochat(state):
    out = {"embedding": state["transformer.wte.weight"], "head": state["lm_head.weight"], "residual_scales": state["resid_lambdas"],
           "x0_scales": state["x0_lambdas"], "smear_gate": state["smear_gate.weight"], "smear_scale": state["smear_lambda"],
           "backout_scale": state["backout_lambda"]}
    layers = len(state["resid_lambdas"])
    for layer in range(layers):
        get = lambda name: state.get(f"transformer.h.{layer}.{name}.weight")
        ours = {"qkv": join([get(f"attn.c_{x}") for x in "qkv"]), "out": get("attn.c_proj"), "up": get("mlp.c_fc"),
                "down": get("mlp.c_proj"), "value_gate": get("attn.ve_gate"),
                "value_embedding": state.get(f"value_embeds.{layer}.weight")}
        out.update({f"blocks.{layer}.{name}": value for name, value in ours.items() if value is not None})
    return out


def add_case(out, configs, name, model, rename, run, settings, rows=B, length=T):
    """run(model, ids) gives logits and a loss to add."""
    randomise(model, seed=len(configs))
    ids = torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(100 + len(configs)))
    logits, extra = run(model, ids)
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1)) + extra
    loss.backward()
    parameters = dict(model.named_parameters())
    for kind, tensors in (("weight", {n: p.detach() for n, p in parameters.items()}), ("gradient", {n: p.grad for n, p in parameters.items()})):
        for ours, value in rename(tensors).items():
            out[f"{name}.{kind}.{ours}"] = value.contiguous().clone()
    out[f"{name}.ids"], out[f"{name}.logits"] = ids.to(torch.int32), logits.detach().clone()
    out[f"{name}.loss"] = loss.detach().double()
    configs[name] = json.dumps({"vocab_size": V, **settings})
    print(f"{name}: loss {loss.item():.4f}, largest logit {logits.abs().max().item():.3f}")


def add_transformers(out, configs):
    import transformers as hf
    common = dict(vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                  attn_implementation="eager", torch_dtype=torch.float32, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    ours = {"layers": 2, "width": 24, "heads": 4, "kv_heads": 2}
    run = lambda model, ids: (model.eval()(ids).logits, 0)

    config = hf.GPT2Config(vocab_size=V, n_embd=24, n_layer=2, n_head=3, n_positions=20, bos_token_id=None, eos_token_id=None, attn_implementation="eager")
    add_case(out, configs, "gpt2", hf.GPT2LMHeadModel(config), gpt2, run,
             {"family": "gpt2", "layers": 2, "width": 24, "heads": 3, "context": 20, "norm_eps": config.layer_norm_epsilon})

    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32}
    config = hf.LlamaConfig(**common, intermediate_size=32, rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=False)
    add_case(out, configs, "llama", hf.LlamaForCausalLM(config), llama, run,
             {"family": "llama", **ours, "ffn": 32, "norm_eps": 1e-5, "rope_theta": 500, "rope_scaling": "llama3", "rope_factor": 4,
              "rope_low_freq": 1, "rope_high_freq": 4, "rope_original_context": 32, "tie_embeddings": "false"})

    rope = {"rope_type": "default", "rope_theta": 1e6}
    config = hf.Qwen2Config(**common, intermediate_size=32, rms_norm_eps=1e-6, rope_parameters=rope, tie_word_embeddings=True)
    add_case(out, configs, "qwen2", hf.Qwen2ForCausalLM(config), llama, run,
             {"family": "qwen2", **ours, "ffn": 32, "norm_eps": 1e-6, "rope_theta": 1e6})

    # Heads of 8, whatever the width.
    config = hf.Qwen3Config(**common, head_dim=8, intermediate_size=32, rms_norm_eps=1e-6, rope_parameters=rope, tie_word_embeddings=False)
    add_case(out, configs, "qwen3", hf.Qwen3ForCausalLM(config), llama, run,
             {"family": "qwen3", **ours, "head_size": 8, "ffn": 32, "norm_eps": 1e-6, "rope_theta": 1e6, "tie_embeddings": "false"})

    for normed in (True, False):
        config = hf.Qwen3MoeConfig(**common, head_dim=8, intermediate_size=32, moe_intermediate_size=8, num_experts=5, num_experts_per_tok=2,
                                   norm_topk_prob=normed, decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6, rope_parameters=rope,
                                   tie_word_embeddings=True)
        add_case(out, configs, "qwen3_moe" if normed else "qwen3_moe_raw", hf.Qwen3MoeForCausalLM(config), llama, run,
                 {"family": "qwen3_moe", **ours, "head_size": 8, "expert_ffn": 8, "experts": 5, "experts_per_token": 2,
                  "norm_topk": str(normed).lower(), "norm_eps": 1e-6, "rope_theta": 1e6})


def add_minimind(out, configs, checkout):
    sys.path.insert(0, checkout)
    from model.model_minimind import MiniMindConfig, MiniMindForCausalLM
    run = lambda model, ids: (lambda result: (result.logits, result.aux_loss))(model.train()(ids))
    ours = {"layers": 2, "width": 24, "heads": 4, "kv_heads": 2, "norm_eps": 1e-6, "rope_theta": 1e6}
    common = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=V, flash_attn=False)
    add_case(out, configs, "minimind", MiniMindForCausalLM(MiniMindConfig(**common, intermediate_size=32)), llama, run,
             {"family": "qwen3", **ours, "ffn": 32})
    for name, per_token in (("minimind_moe", 1), ("minimind_moe_two", 2)):
        config = MiniMindConfig(**common, use_moe=True, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=per_token,
                                router_aux_loss_coef=0.5)
        add_case(out, configs, name, MiniMindForCausalLM(config), llama, run,
                 {"family": "qwen3_moe", **ours, "expert_ffn": 8, "experts": 4, "experts_per_token": per_token, "balance_coef": 0.5})


def add_nanochat(out, configs, checkout):
    """160 positions, so that windows of 128 matter."""
    sys.path.insert(0, checkout)
    from nanochat.gpt import GPT, GPTConfig
    model = GPT(GPTConfig(sequence_len=160, vocab_size=V, n_layer=3, n_head=2, n_kv_head=1, n_embd=24, window_pattern="SL"), pad_vocab_size_to=V)
    model.init_weights()
    add_case(out, configs, "nanochat", model, nanochat, lambda model, ids: (model(ids), 0),
             {"family": "nanochat", "layers": 3, "width": 24, "heads": 2, "kv_heads": 1, "context": 160, "window_pattern": "SL"},
             rows=1, length=160)


def main():
    torch.set_num_threads(1)
    out, configs = {}, {}
    add_transformers(out, configs)
    add_minimind(out, configs, sys.argv[2])
    add_nanochat(out, configs, sys.argv[1])
    path = pathlib.Path(__file__).with_name("models.safetensors")
    save_file(out, str(path), metadata=configs)
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
