"""Makes seq2seq.safetensors: tiny encoder-decoder transformers in plain PyTorch, for tests/train/seq2seq_test.cpp.

    .deps/peers/bin/python tests/golden/make_seq2seq.py

The structure is that of "Attention is all you need" (norms after each part) and of the Annotated Transformer (before), in
elementary operations on purpose: dense masks, explicit softmax, label smoothing as a Kullback-Leibler divergence. fp32,
no dropout. The case `training` goes on for fifty steps of Adam with the Noam rate.
"""
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

D, H, FFN, ENCODER, DECODER, EPS, PAD = 8, 2, 16, 2, 2, 1e-5, 0
SMOOTHING, WARMUP, FACTOR, STEPS = 0.1, 20, 0.3, 50
CASES = {
    "pre": {"norm_place": "pre", "share_embeddings": True, "vocab_size": 20},
    "post": {"norm_place": "post", "share_embeddings": False, "tie_embeddings": False, "vocab_size": 17, "source_vocab_size": 23},
    "rotary": {"norm_place": "pre", "positions": "rotary", "share_embeddings": False, "vocab_size": 17,
               "source_vocab_size": 12, "activation": "gelu"},
    "training": {"norm_place": "post", "share_embeddings": True, "vocab_size": 20},
}  # fmt: skip
SIZES = {"family": "seq2seq", "width": D, "heads": H, "ffn": FFN, "layers": DECODER, "encoder_layers": ENCODER}


def make_weights(config, generator):
    weights = {}

    def matrix(name, out, into):
        weights[name] = torch.randn(out, into, generator=generator) * 0.3

    def linear(name, out, into):
        matrix(name, out, into)
        weights[name + "_bias"] = torch.randn(out, generator=generator) * 0.1

    def norm(name):
        weights[name] = 1 + torch.randn(D, generator=generator) * 0.1
        weights[name + "_bias"] = torch.randn(D, generator=generator) * 0.1

    matrix("embedding", config["vocab_size"], D)
    if not config["share_embeddings"]:
        matrix("source_embedding", config["source_vocab_size"], D)
    for side, layers in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in range(layers):
            prefix = f"{side}.blocks.{layer}."
            norm(prefix + "attention_norm")
            linear(prefix + "qkv", 3 * D, D)
            linear(prefix + "out", D, D)
            if side == "decoder":
                norm(prefix + "cross_norm")
                linear(prefix + "cross_q", D, D)
                linear(prefix + "cross_kv", 2 * D, D)
                linear(prefix + "cross_out", D, D)
            norm(prefix + "ffn_norm")
            linear(prefix + "up", FFN, D)
            linear(prefix + "down", D, FFN)
        if config["norm_place"] == "pre":
            norm(f"{side}.final_norm")
    if not config["share_embeddings"] and not config.get("tie_embeddings", True):
        matrix("head", config["vocab_size"], D)
    return weights


class Model:
    def __init__(self, config, weights):
        self.config, self.w = config, weights
        self.rotary = config.get("positions") == "rotary"

    def linear(self, name, x):
        return x @ self.w[name].T + self.w[name + "_bias"]

    def norm(self, name, x):
        return F.layer_norm(x, (D,), self.w[name], self.w[name + "_bias"], EPS)

    def residual(self, name, x, part):
        if self.config["norm_place"] == "pre":
            return x + part(self.norm(name, x))
        return self.norm(name, x + part(x))

    def embed(self, name, ids):
        x = self.w[name][ids] * math.sqrt(D)
        if self.rotary:
            return x
        place = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = place * torch.exp(torch.arange(0, D, 2, dtype=torch.float64) * (-math.log(10000.0) / D))
        waves = torch.zeros(ids.shape[1], D, dtype=torch.float64)
        waves[:, 0::2], waves[:, 1::2] = angle.sin(), angle.cos()
        return x + waves.float()

    def turn(self, x):  # (B, T, H, size): element i turns with element i + half
        half = x.shape[-1] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos().float()[:, None, :], angle.sin().float()[:, None, :]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, q, k, v, mask, own):
        q, k, v = (x.view(*x.shape[:2], H, D // H) for x in (q, k, v))
        if own and self.rotary:
            q, k = self.turn(q), self.turn(k)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(D // H)
        weights = scores.masked_fill(~mask[:, None], -1e9).softmax(-1)
        return torch.einsum("bhts,bshd->bthd", weights, v).reshape(*q.shape[:2], D)

    def feed_forward(self, prefix, x):
        activation = F.gelu if self.config.get("activation") == "gelu" else F.relu
        return self.linear(prefix + "down", activation(self.linear(prefix + "up", x)))

    def own_attention(self, prefix, x, mask):
        q, k, v = self.linear(prefix + "qkv", x).chunk(3, -1)
        return self.linear(prefix + "out", self.attend(q, k, v, mask, True))

    def cross_attention(self, prefix, x, memory, mask):
        k, v = self.linear(prefix + "cross_kv", memory).chunk(2, -1)
        return self.linear(prefix + "cross_out", self.attend(self.linear(prefix + "cross_q", x), k, v, mask, False))

    def forward(self, source, inputs):
        shared = self.config["share_embeddings"]
        seen = (source != PAD)[:, None, :]
        x = self.embed("embedding" if shared else "source_embedding", source)
        for layer in range(ENCODER):
            p = f"encoder.blocks.{layer}."
            x = self.residual(p + "attention_norm", x, lambda y: self.own_attention(p, y, seen))
            x = self.residual(p + "ffn_norm", x, lambda y: self.feed_forward(p, y))
        memory = self.norm("encoder.final_norm", x) if self.config["norm_place"] == "pre" else x
        causal = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).tril()[None]
        causal = causal & (inputs != PAD)[:, None, :]
        x = self.embed("embedding", inputs)
        for layer in range(DECODER):
            p = f"decoder.blocks.{layer}."
            x = self.residual(p + "attention_norm", x, lambda y: self.own_attention(p, y, causal))
            x = self.residual(p + "cross_norm", x, lambda y: self.cross_attention(p, y, memory, seen))
            x = self.residual(p + "ffn_norm", x, lambda y: self.feed_forward(p, y))
        x = self.norm("decoder.final_norm", x) if self.config["norm_place"] == "pre" else x
        return x @ self.w["head" if "head" in self.w else "embedding"].T


def divergence(logits, targets):
    """The Annotated Transformer's label smoothing."""
    size = logits.shape[-1]
    wanted = torch.full_like(logits, SMOOTHING / (size - 2))
    wanted.scatter_(1, targets[:, None], 1 - SMOOTHING)
    wanted[:, PAD] = 0
    wanted[targets == PAD] = 0
    return F.kl_div(logits.log_softmax(-1), wanted, reduction="sum")


def sentences(rows, length, vocabulary, generator):
    """<s> (1), words, </s> (2), padded to `length`; the first row is full."""
    ids = torch.full((rows, length), PAD)
    for row in range(rows):
        words = length - 2 if row == 0 else int(torch.randint(1, length - 1, (), generator=generator))
        ids[row, 0] = 1
        ids[row, 1 : 1 + words] = torch.randint(3, vocabulary, (words,), generator=generator)
        ids[row, 1 + words] = 2
    return ids


def lengths(ids):
    return (ids != PAD).sum(1)


def main():
    torch.set_num_threads(1)
    out, metadata = {}, {}
    for number, (name, settings) in enumerate(CASES.items()):
        config = SIZES | settings
        metadata[name] = json.dumps(config)
        generator = torch.Generator().manual_seed(30 + number)
        weights = make_weights(config, generator)
        model = Model(config, weights)
        out.update({f"{name}.weight.{key}": value.clone() for key, value in weights.items()})
        for value in weights.values():
            value.requires_grad_()
        batches = STEPS if name == "training" else 1
        source_words = config.get("source_vocab_size", config["vocab_size"])
        sources = torch.stack([sentences(4, 7, source_words, generator) for _ in range(batches)])
        # For training something that can be learned: the words of the source, moved on by one.
        if name == "training":
            targets = torch.where(sources > 2, (sources - 2) % (config["vocab_size"] - 3) + 3, sources)
        else:
            targets = torch.stack([sentences(4, 6, config["vocab_size"], generator) for _ in range(batches)])
        out[f"{name}.source"], out[f"{name}.target"] = sources.int(), targets.int()
        if name != "training":
            logits = model.forward(sources[0], targets[0, :, :-1])
            wanted = targets[0, :, 1:].reshape(-1)
            flat = logits.reshape(-1, logits.shape[-1])
            out[f"{name}.logits"] = logits.detach().clone()
            usual = F.cross_entropy(flat, wanted, ignore_index=PAD, reduction="sum", label_smoothing=SMOOTHING)
            out[f"{name}.usual"] = usual.detach()
            loss = divergence(flat, wanted)
            out[f"{name}.divergence"] = loss.detach()
            usual.backward(retain_graph=True)
            out.update({f"{name}.usual.{key}": value.grad.clone() for key, value in weights.items()})
            for value in weights.values():
                value.grad = None
            loss.backward()
            out.update({f"{name}.divergence.{key}": value.grad.clone() for key, value in weights.items()})
            continue
        optimizer = torch.optim.Adam(list(weights.values()), lr=0, betas=(0.9, 0.98), eps=1e-9)
        losses = []
        for step in range(1, STEPS + 1):
            source, target = sources[step - 1], targets[step - 1]
            logits = model.forward(source, target[:, :-1])
            wanted = target[:, 1:].reshape(-1)
            count = (wanted != PAD).sum()
            loss = divergence(logits.reshape(-1, logits.shape[-1]), wanted) / count
            optimizer.param_groups[0]["lr"] = FACTOR * D**-0.5 * min(step**-0.5, step * WARMUP**-1.5)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        out["training.losses"] = torch.tensor(losses, dtype=torch.float64)
        out.update({f"training.end.{key}": value.detach().clone() for key, value in weights.items()})
        print("losses:", " ".join(f"{loss:.4f}" for loss in losses))
    save_file(out, str(pathlib.Path(__file__).with_name("seq2seq.safetensors")), metadata=metadata)


main()
