#include "model/model_config.h"

#include "core/error.h"

namespace tightloop {

const std::vector<Preset>& model_presets() {
  static const std::vector<Preset> presets{
      {"gpt2-124m",
       {{"family", "gpt2"},
        {"layers", "12"},
        {"width", "768"},
        {"heads", "12"},
        {"vocab_size", "50304"},
        {"context", "1024"},
        {"norm_eps", "1e-5"}}},
      {"minimind-64m",
       {{"family", "qwen3"},
        {"layers", "8"},
        {"width", "768"},
        {"heads", "8"},
        {"kv_heads", "4"},
        {"ffn", "2432"},
        {"vocab_size", "6400"},
        {"rope_theta", "1e6"}}},
      {"minimind-moe-198m",
       {{"family", "qwen3_moe"},
        {"layers", "8"},
        {"width", "768"},
        {"heads", "8"},
        {"kv_heads", "4"},
        {"expert_ffn", "2432"},
        {"vocab_size", "6400"},
        {"rope_theta", "1e6"},
        {"experts", "4"},
        {"experts_per_token", "1"}}},
      {"nanochat-d4", {{"family", "nanochat"}, {"depth", "4"}}},
      {"nanochat-d12", {{"family", "nanochat"}, {"depth", "12"}}},
      {"nanochat-d20", {{"family", "nanochat"}, {"depth", "20"}}},
  };
  return presets;
}

void ModelConfig::describe(Fields& fields) {
  fields.add("preset", preset, "A known model: sets the other sizes").presets(model_presets());
  fields.add("family", family, "Architecture")
      .choices({"gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "nanochat"});
  fields
      .add("depth", depth,
           "nanochat's one dial: layers, width (64 a layer, in heads of 128) and heads follow; 0: off")
      .range(0, 1000);
  fields.add("layers", layers, "Number of blocks").range(1, 1000);
  fields.add("width", width, "Width of the residual stream").range(1, 1 << 20);
  fields.add("heads", heads, "Attention heads; width must be a multiple").range(1, 1 << 12);
  fields.add("kv_heads", kv_heads, "Heads of keys and values; 0: as many as heads").range(0, 1 << 12);
  fields.add("head_size", head_size, "Width of a head; 0: width / heads").range(0, 1 << 12);
  fields
      .add("ffn", ffn,
           "Inner width of the feed-forward; 0: the family's own (llama: 8/3 of the width, rounded up to 64)")
      .range(0, 1 << 22);
  fields.add("vocab_size", vocab_size, "Rows of the embedding; 0: the tokenizer's size, rounded up to 64")
      .range(0, 1 << 24);
  fields
      .add("context", context,
           "Longest sequence: rows of learned positions, base of sliding windows; 0: the rows' length")
      .range(0, 1 << 24);
  fields.add("norm_eps", norm_eps, "Epsilon of the norms").range(0, 1);
  fields
      .add("init_std", init_std,
           "Standard deviation of initial weights (residual projections: / sqrt(2 layers))")
      .range(0, 10);
  fields.add("dropout", dropout, "Share of activations dropped in training").range(0, 0.99);
  fields.add("softcap", softcap, "Logits are squashed into plus or minus this; 0: off").range(0, 1e6);
  fields.add("tie_embeddings", tie_embeddings, "The head shares the embedding's weight");
  fields.add("rope_theta", rope_theta, "Base of the rotary positions").range(1, 1e12);
  fields.add("rope_scaling", rope_scaling, "Stretching of the rotary positions").choices({"none", "llama3"});
  fields.add("rope_factor", rope_factor, "llama3 scaling: how far low frequencies are stretched")
      .range(1, 1e6);
  fields.add("rope_low_freq", rope_low_freq, "llama3 scaling: wavelengths above context / this are stretched")
      .range(0, 1e6);
  fields.add("rope_high_freq", rope_high_freq, "llama3 scaling: wavelengths below context / this stay")
      .range(0, 1e6);
  fields
      .add("rope_original_context", rope_original_context,
           "llama3 scaling: the context trained before stretching")
      .range(1, 1 << 24);
  fields.add("window_pattern", window_pattern,
             "nanochat: S (a quarter of the context) or L (all of it) a layer, repeated; the last is L");
  fields.add("experts", experts, "qwen3_moe: experts a layer").range(1, 1 << 12);
  fields.add("experts_per_token", experts_per_token, "qwen3_moe: experts that each token visits")
      .range(1, 1 << 12);
  fields.add("expert_ffn", expert_ffn, "qwen3_moe: inner width of an expert; 0: as ffn").range(0, 1 << 22);
  fields.add("norm_topk", norm_topk, "qwen3_moe: the chosen experts' weights are scaled to sum to 1");
  fields.add("balance_coef", balance_coef, "qwen3_moe: weight of the balance loss").range(0, 1e3);
  fields.add("balance", balance, "qwen3_moe: E * sum(load * mean score), or sum((load - 1/E)^2)")
      .choices({"minimind", "simple"});
}

void ModelConfig::resolve(int64_t tokenizer_vocab, int64_t row_length) {
  const auto round_up = [](int64_t value) { return (value + 63) / 64 * 64; };
  if (kv_heads == 0) kv_heads = heads;
  if (head_size == 0) {
    if (width % heads)
      throw usage_error("model.width ({}) must be a multiple of model.heads ({}).", width, heads);
    head_size = width / heads;
  }
  if (ffn == 0) ffn = round_up(width * 8 / 3);
  if (vocab_size == 0) vocab_size = round_up(tokenizer_vocab);
  if (context == 0) context = row_length;
  if (heads % kv_heads) {
    throw usage_error("model.heads ({}) must be a multiple of model.kv_heads ({}).", heads, kv_heads);
  }
  if (head_size % 2) {
    throw usage_error("model.head_size is {}; rotary positions need an even head size.", head_size);
  }
  if (vocab_size < tokenizer_vocab) {
    throw usage_error("model.vocab_size ({}) is smaller than the tokenizer's vocabulary ({}).", vocab_size,
                      tokenizer_vocab);
  }
}

}  // namespace tightloop
