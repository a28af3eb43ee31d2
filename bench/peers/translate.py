#!/usr/bin/env python3
"""Translation by the peers, one JSON line a measurement: training and decoding an encoder-decoder transformer.

    python bench/peers/translate.py train [--vocab 32000] [--norm pre|post] [--shared] [--modes fp32,bf16,...]
    python bench/peers/translate.py decode (--source FILE | --random 1000 --source-length 16) [--vocab 32000] [--length 30]
    (either with --device cpu --small: tiny sizes, to see that it runs)

The model has the structure of the Annotated Transformer: 6+6 layers of 512, 8 heads, ffn 2048, dropout 0.1, sinusoidal
positions, four separate projections and an explicit attention under dense boolean masks. Where it departs from the
original it does so in its favour: PyTorch's own LayerNorm and cross entropy, batches that lie on the device already.

train: B32 S40 of random ids, Adam 3e-4, label smoothing 0.1, the sum over the tokens divided by their number.
  fp32             as published, `.item()` after every batch, TF32 off
  fp32-tf32        the same with TF32
  bf16             autocast, eager; here and below the loss is never read
  compile          autocast, masks, model and loss in one torch.compile(dynamic=False)
  reduce-overhead  the same with mode="reduce-overhead"

decode: random weights in bf16, beam 5, batches of 64 sentences of similar length. An end token is forbidden and every
sentence gets exactly --length tokens, so that all peers do equal work; FILE has a line of space-separated ids a sentence.
  plain            a batched beam search without a cache: each step decodes the whole prefix of every beam
  transformers     generate() of a MarianMTModel of the same shape, with its cache (post-norm, whatever --norm says)

The medians of --rounds rounds are reported, after a warm-up."""

import argparse
import gc
import json
import math
import random
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

PAD, START, END = 0, 1, 2
TRAIN_MODES = ["fp32", "fp32-tf32", "bf16", "compile", "reduce-overhead"]
DECODE_PEERS = ["plain", "transformers"]
SMALL = dict(layers=2, width=32, heads=4, ffn=64, vocab=101, batch=4, tokens=8, steps=3, warmup=2, rounds=2, sentences=20,
             sentences_a_batch=8, length=5)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, mask):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        weights = self.dropout(scores.softmax(dim=-1))
        return self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """An encoder's layer, or with `cross` a decoder's."""

    def __init__(self, o, cross):
        super().__init__()
        self.pre, self.cross = o.norm == "pre", cross
        self.attention = nn.ModuleList(Attention(o.width, o.heads, o.dropout) for _ in range(1 + cross))
        self.feed_forward = nn.Sequential(nn.Linear(o.width, o.ffn), nn.ReLU(), nn.Dropout(o.dropout),
                                          nn.Linear(o.ffn, o.width))
        self.norms = nn.ModuleList(nn.LayerNorm(o.width) for _ in range(2 + cross))
        self.dropout = nn.Dropout(o.dropout)

    def sublayer(self, x, norm, function):
        if self.pre:
            return x + self.dropout(function(norm(x)))
        return norm(x + self.dropout(function(x)))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.sublayer(x, self.norms[0], lambda y: self.attention[0](y, y, mask))
        if self.cross:
            x = self.sublayer(x, self.norms[1], lambda y: self.attention[1](y, memory, memory_mask))
        return self.sublayer(x, self.norms[-1], self.feed_forward)


class Translator(nn.Module):
    def __init__(self, o, positions):
        super().__init__()
        self.source_embedding = nn.Embedding(o.vocab, o.width)
        self.target_embedding = self.source_embedding if o.shared else nn.Embedding(o.vocab, o.width)
        self.encoder = nn.ModuleList(Layer(o, False) for _ in range(o.layers))
        self.decoder = nn.ModuleList(Layer(o, True) for _ in range(o.layers))
        last = lambda: nn.LayerNorm(o.width) if o.norm == "pre" else nn.Identity()
        self.encoder_norm, self.decoder_norm = last(), last()
        self.head = nn.Linear(o.width, o.vocab)
        if o.shared:
            self.head.weight = self.source_embedding.weight
        self.dropout = nn.Dropout(o.dropout)
        angles = torch.arange(positions)[:, None] * torch.exp(torch.arange(0, o.width, 2) * (-math.log(10000.0) / o.width))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, ids, embedding):
        return self.dropout(embedding(ids) * math.sqrt(embedding.embedding_dim) + self.positions[:ids.size(1)])

    def encode(self, source, mask):
        x = self.embed(source, self.source_embedding)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(self, target, mask, memory, memory_mask):
        x = self.embed(target, self.target_embedding)
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return self.decoder_norm(x)

    def forward(self, source, target):
        """The training loss, masks and all, so that torch.compile sees it as a whole."""
        given, wanted = target[:, :-1], target[:, 1:]
        source_mask = (source != PAD).unsqueeze(1)
        target_mask = (given != PAD).unsqueeze(1) & causal_mask(given.size(1), given.device)
        logits = self.head(self.decode(given, target_mask, self.encode(source, source_mask), source_mask))
        total = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=0.1,
                                reduction="sum")
        return total / (wanted != PAD).sum()


def causal_mask(length, device):
    return torch.ones(1, length, length, dtype=torch.bool, device=device).tril()


def synchronize(o):
    if o.device == "cuda":
        torch.cuda.synchronize()


def machine(o):
    return {"device": torch.cuda.get_device_name() if o.device == "cuda" else o.device, "torch": torch.__version__}


def report(o, name, measure):
    """Prints what measure() found, or why it could not; whatever it held on the device is free afterwards."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    gc.collect()
    if o.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    line = {"bench": o.command, "peer": name, "vocab": o.vocab, "shared": o.shared,
            "norm": "post" if name == "transformers" else o.norm}
    try:
        line.update(measure())
        if o.device == "cuda":
            line["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
            line["peak_reserved_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 3)
    except Exception as error:  # the other peers are still worth measuring
        line["error"] = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps({**line, **machine(o)}), flush=True)
    return "error" not in line


def train_mode(o, mode):
    torch.set_float32_matmul_precision("highest" if mode == "fp32" else "high")
    published = mode.startswith("fp32")
    model = Translator(o, o.tokens).to(o.device).train()
    adam = torch.optim.Adam(model.parameters(), lr=3e-4, fused=o.fused_adam or None)
    draw = lambda length: torch.randint(END + 1, o.vocab, (o.batch, length), device=o.device)
    batches = [(draw(o.tokens), draw(o.tokens + 1)) for _ in range(8)]
    compiled = {"compile": dict(dynamic=False), "reduce-overhead": dict(dynamic=False, mode="reduce-overhead")}
    loss_of = torch.compile(model, **compiled[mode]) if mode in compiled else model
    total = 0.0

    def step(index):
        nonlocal total
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(o.device, torch.bfloat16, enabled=not published):
            loss = loss_of(*batches[index % len(batches)])
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        if published:
            total += loss.item()
        return loss

    start = time.perf_counter()
    first_loss = step(0).item()
    first_step = time.perf_counter() - start
    for index in range(1, o.warmup):
        step(index)
    rounds = []
    for _ in range(o.rounds):
        synchronize(o)
        start = time.perf_counter()
        for index in range(o.steps):
            step(index)  # its loss is dropped at once: a graph will overwrite it
        synchronize(o)
        rounds.append((time.perf_counter() - start) * 1e3 / o.steps)
    ms = statistics.median(rounds)
    return {"ms": round(ms, 4), "steps_s": round(1e3 / ms, 3), "tokens_s": round(o.batch * o.tokens * 1e3 / ms),
            "ms_rounds": [round(r, 4) for r in rounds], "first_step_s": round(first_step, 2), "batch": o.batch,
            "tokens_a_side": o.tokens, "item_every_batch": published, "fused_adam": o.fused_adam,
            "parameters": sum(p.numel() for p in model.parameters()), "first_loss": round(first_loss, 4),
            "last_loss": round(step(0).item(), 4)}


def read_sources(o):
    if o.source is None:
        draw = random.Random(0)
        middle = o.source_length
        return [[draw.randrange(END + 1, o.vocab) for _ in range(draw.randint(middle // 2 or 1, middle + middle // 2))]
                for _ in range(o.random)][:o.sentences or None]
    sentences = []
    with open(o.source) as file:
        for number, line in enumerate(file, 1):
            ids = [int(word) for word in line.split()]
            if not ids or min(ids) < 0 or max(ids) >= o.vocab:
                sys.exit(f"{o.source}:{number}: want at least one id, each from 0 to {o.vocab - 1} (--vocab)")
            sentences.append(ids)
    if not sentences:
        sys.exit(f"{o.source} has no sentences")
    return sentences[:o.sentences or None]


def read_lengths(o, sentences):
    """How many tokens each translation is forced to have."""
    if o.lengths is None:
        return [o.length] * len(sentences)
    with open(o.lengths) as file:
        lengths = [int(line) for line in file][:o.sentences or None]
    if len(lengths) != len(sentences):
        sys.exit(f"{o.lengths} has {len(lengths)} lengths for {len(sentences)} sentences")
    return lengths


def make_batches(o, sentences, lengths):
    """Sentences of similar length together: ids and a mask of what is real, [B, S] each, and how many tokens the longest
    of their translations has, which a batch cannot end before."""
    ordered = sorted(zip(sentences, lengths), key=lambda pair: len(pair[0]), reverse=True)
    batches = []
    for start in range(0, len(ordered), o.sentences_a_batch):
        rows, wanted = zip(*ordered[start:start + o.sentences_a_batch])
        longest = len(rows[0])
        ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=o.device)
        lengths = torch.tensor([len(row) for row in rows], device=o.device)
        batches.append((ids, torch.arange(longest, device=o.device) < lengths[:, None], max(wanted)))
    return batches


def beam_search(model, ids, real, beams, length):
    """The best `length` tokens of each sentence and their log-probability, [B, length] and [B]; no cache."""
    B = ids.size(0)
    mask = real.unsqueeze(1)
    memory = model.encode(ids, mask).repeat_interleave(beams, 0)
    mask = mask.repeat_interleave(beams, 0)
    prefix = torch.full((B * beams, 1), START, device=ids.device)
    scores = torch.full((B, beams), -math.inf, device=ids.device)
    scores[:, 0] = 0  # the beams of a sentence begin alike: only one of them may be extended
    first_row = torch.arange(B, device=ids.device)[:, None] * beams
    for _ in range(length):
        hidden = model.decode(prefix, causal_mask(prefix.size(1), ids.device), memory, mask)
        logits = model.head(hidden[:, -1]).float()
        logits[:, END] = -math.inf
        candidates = scores.unsqueeze(2) + logits.log_softmax(-1).view(B, beams, -1)
        scores, chosen = candidates.flatten(1).topk(beams)
        rows = (first_row + chosen // logits.size(-1)).flatten()
        prefix = torch.cat([prefix[rows], (chosen % logits.size(-1)).view(-1, 1)], 1)
    return prefix.view(B, beams, -1)[:, 0, 1:], scores[:, 0]


def plain_decoder(o, positions):
    model = Translator(o, positions).to(o.device, torch.bfloat16).eval()
    return lambda ids, real, length: beam_search(model, ids, real, o.beams, length)[0]


def transformers_decoder(o, positions):
    import transformers

    config = transformers.MarianConfig(
        vocab_size=o.vocab, decoder_vocab_size=o.vocab, d_model=o.width, encoder_layers=o.layers, decoder_layers=o.layers,
        encoder_attention_heads=o.heads, decoder_attention_heads=o.heads, encoder_ffn_dim=o.ffn, decoder_ffn_dim=o.ffn,
        activation_function="relu", dropout=o.dropout, max_position_embeddings=positions, scale_embedding=True,
        share_encoder_decoder_embeddings=o.shared, tie_word_embeddings=o.shared, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=START, forced_eos_token_id=None)
    model = transformers.MarianMTModel(config).to(o.device, torch.bfloat16).eval()

    def decode(ids, real, length):
        return model.generate(input_ids=ids, attention_mask=real.long(), num_beams=o.beams, do_sample=False, use_cache=True,
                              min_new_tokens=length, max_new_tokens=length)[:, 1:]

    return decode


def decode_peer(o, peer, batches):
    positions = max(max(ids.size(1), length + 1) for ids, _, length in batches)
    decode = {"plain": plain_decoder, "transformers": transformers_decoder}[peer](o, positions)
    count = sum(len(ids) for ids, _, _ in batches)
    seconds = []
    with torch.inference_mode():
        for _ in range(1 + o.rounds):  # the first one warms up
            synchronize(o)
            start = time.perf_counter()
            for ids, real, length in batches:
                out = decode(ids, real, length)
            synchronize(o)
            seconds.append(time.perf_counter() - start)
            assert out.shape == (len(ids), length) and not (out == END).any()
    middle = statistics.median(seconds[1:])
    line = {"sentences_s": round(count / middle, 2), "seconds": round(middle, 4),
            "seconds_rounds": [round(s, 4) for s in seconds[1:]], "sentences": count,
            "forced_lengths": [length for _, _, length in batches],
            "beams": o.beams, "sentences_a_batch": o.sentences_a_batch, "precision": "bf16",
            "source_tokens": sum(int(real.sum()) for _, real, _ in batches)}
    if peer == "transformers":
        import transformers
        line["transformers"] = transformers.__version__
    return line


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train, decode = (commands.add_parser(name, allow_abbrev=False) for name in ("train", "decode"))
    for command, names in ((train, TRAIN_MODES), (decode, DECODE_PEERS)):
        command.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
        command.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
        command.add_argument("--modes", default=",".join(names), help="which to measure, by commas")
        for name, value in dict(layers=6, width=512, heads=8, ffn=2048, vocab=32000).items():
            command.add_argument(f"--{name}", type=int, default=value)
        command.add_argument("--dropout", type=float, default=0.1)
        command.add_argument("--norm", default="pre", choices=["pre", "post"])
        command.add_argument("--shared", action="store_true", help="one matrix for both embeddings and the head")
        command.set_defaults(known=names)
    for name, value in dict(batch=32, tokens=40, steps=20, warmup=15, rounds=5).items():
        train.add_argument(f"--{name}", type=int, default=value)
    train.add_argument("--fused-adam", action="store_true", help="Adam's fused form in all modes")
    decode.add_argument("--source", help="a line of space-separated ids a sentence")
    decode.add_argument("--lengths", help="a line for each sentence: tokens of its translation, instead of --length")
    decode.add_argument("--random", type=int, default=0, help="so many random sentences instead of a file")
    decode.add_argument("--source-length", type=int, default=16, help="the mean length of the random ones, +- a half")
    decode.add_argument("--sentences", type=int, default=256, help="only the first so many; 0: all")
    for name, value in {"sentences-a-batch": 64, "length": 30, "beams": 5, "rounds": 3}.items():
        decode.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.small:
        given = {word[2:].split("=")[0].replace("-", "_") for word in sys.argv if word.startswith("--")}
        for name, value in SMALL.items():
            if hasattr(options, name) and name not in given:
                setattr(options, name, value)
    options.modes = options.modes.split(",")
    for mode in options.modes:
        if mode not in options.known:
            parser.error(f"unknown mode {mode}; there are {', '.join(options.known)}")
    if options.command == "decode" and (options.source is None) == (options.random < 1):
        parser.error("decode wants either --source FILE or --random COUNT")
    return options


def main():
    o = parse()
    if o.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("there is no GPU here; --device cpu --small shows that the script runs")
        torch.zeros(1, device=o.device)  # memory statistics want the device in use already
    if o.command == "train":
        measures = {mode: (lambda mode=mode: train_mode(o, mode)) for mode in o.modes}
    else:
        sources = read_sources(o)
        batches = make_batches(o, sources, read_lengths(o, sources))
        measures = {peer: (lambda peer=peer: decode_peer(o, peer, batches)) for peer in o.modes}
    return 0 if all([report(o, name, measure) for name, measure in measures.items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
