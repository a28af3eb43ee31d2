"""Makes sft.safetensors: 50 optimizer steps of MiniMind's own fine-tuning loop, dense and with experts, for
tests/train/sft_test.cpp.

    .deps/peers/bin/python tests/golden/make_sft.py CHECKOUT_OF_MINIMIND

MiniMind at commit d65ef2c: its model with its own losses, its get_lr, AdamW as its trainer makes it, its accumulation and
clipping, in fp32 on fixed batches. Nothing of it is copied; the loop is written again from trainer/train_full_sft.py.
"""
import ast
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

CHECKOUT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(CHECKOUT))
from model.model_minimind import MiniMindConfig, MiniMindForCausalLM

STEPS, ACCUMULATION, B, T, V = 50, 4, 2, 12, 48
LR, CLIP = 5e-3, 1.0
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, vocab_size=V, intermediate_size=24)


def its_rate():
    """get_lr of its trainer_utils, without the imports of that file."""
    tree = ast.parse((CHECKOUT / "trainer/trainer_utils.py").read_text(encoding="utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_lr")
    space = {"math": math}
    exec(compile(ast.Module([function], []), "trainer_utils.py", "exec"), space)
    return space["get_lr"]


def ours(model, experts):
    """Its weights under our names."""
    state = {name.removeprefix("model."): value.detach().clone() for name, value in model.state_dict().items()}
    out = {"embedding": state["embed_tokens.weight"], "final_norm": state["norm.weight"]}
    for layer in range(SIZES["num_hidden_layers"]):
        theirs, block = f"layers.{layer}.", f"blocks.{layer}."
        get = lambda name: state[theirs + name + ".weight"]
        out[block + "attention_norm"] = get("input_layernorm")
        out[block + "qkv"] = torch.cat([get(f"self_attn.{part}_proj") for part in "qkv"])
        out[block + "q_norm"], out[block + "k_norm"] = get("self_attn.q_norm"), get("self_attn.k_norm")
        out[block + "out"] = get("self_attn.o_proj")
        out[block + "ffn_norm"] = get("post_attention_layernorm")
        mlp = lambda place: torch.cat([get(place + "gate_proj"), get(place + "up_proj")])
        if experts:
            out[block + "router"] = get("mlp.gate")
            out[block + "expert_gate_up"] = torch.stack([mlp(f"mlp.experts.{e}.") for e in range(experts)])
            out[block + "expert_down"] = torch.stack([get(f"mlp.experts.{e}.down_proj") for e in range(experts)])
        else:
            out[block + "gate_up"], out[block + "down"] = mlp("mlp."), get("mlp.down_proj")
    return out


def run(name, experts, batches, out, get_lr):
    torch.manual_seed(7)
    config = MiniMindConfig(**SIZES, use_moe=bool(experts), num_experts=max(1, experts), num_experts_per_tok=2, moe_intermediate_size=16,
                            router_aux_loss_coef=0.05)
    model = MiniMindForCausalLM(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # far enough from zero for gradients of every kind
    out.update({f"{name}.start.{key}": value for key, value in ours(model, experts).items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    micro_losses, aux_losses, norms, rates = [], [], [], []
    for step, (input_ids, labels) in enumerate(batches, start=1):
        lr = get_lr(step, len(batches), LR)
        for group in optimizer.param_groups:
            group["lr"] = lr
        result = model(input_ids, labels=labels)
        loss = (result.loss + result.aux_loss) / ACCUMULATION
        loss.backward()
        micro_losses.append(result.loss.item())
        aux_losses.append(result.aux_loss.item())
        if step % ACCUMULATION == 0:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
            rates.append(lr)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    for key, values in dict(losses=micro_losses, aux=aux_losses, norms=norms, rates=rates).items():
        out[f"{name}.{key}"] = torch.tensor(values, dtype=torch.float64)
    out.update({f"{name}.end.{key}": value for key, value in ours(model, experts).items()})
    print(name, "losses:", " ".join(f"{loss:.4f}" for loss in micro_losses[::40]), "norms:", " ".join(f"{norm:.3f}" for norm in norms[::10]))


def main():
    torch.set_num_threads(1)
    generator, out = torch.Generator().manual_seed(3), {}
    ids = torch.randint(0, V, (STEPS * ACCUMULATION, B, T), generator=generator)
    ids[:, :, 1::2] = (ids[:, :, ::2] * 5 + 1) % V  # something that can be learned
    labels = ids.clone()
    lengths = torch.randint(2, T - 1, (STEPS * ACCUMULATION, B, 1), generator=generator)  # a question is only read
    labels[torch.arange(T) < lengths] = -100
    batches = list(zip(ids, labels))
    get_lr = its_rate()
    run("dense", 0, batches, out, get_lr)
    run("moe", 3, batches, out, get_lr)
    out.update(ids=ids.to(torch.int32), labels=labels.to(torch.int32))
    save_file(out, str(pathlib.Path(__file__).with_name("sft.safetensors")))


main()
