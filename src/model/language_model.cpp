#include "model/language_model.h"

#include <ATen/ops/linear.h>

#include "core/config.h"
#include "core/error.h"
#include "model/llama.h"

namespace tightloop {

void ModelConfig::describe(Fields& fields) {
  fields.add("family", family, "Architecture").choices({"llama"});
  fields.add("layers", layers, "Number of blocks").range(1, 1000);
  fields.add("width", width, "Width of the residual stream").range(1, 1 << 20);
  fields.add("heads", heads, "Attention heads; width must be a multiple").range(1, 1 << 12);
  fields.add("kv_heads", kv_heads, "Heads of keys and values; 0: as many as heads").range(0, 1 << 12);
  fields.add("ffn", ffn, "Inner width of the feed-forward; 0: 8/3 of the width, rounded up to 64")
      .range(0, 1 << 22);
  fields.add("vocab_size", vocab_size, "Rows of the embedding; 0: the tokenizer's size, rounded up to 64")
      .range(0, 1 << 24);
  fields.add("rope_theta", rope_theta, "Base of the rotary positions").range(1, 1e12);
  fields.add("norm_eps", norm_eps, "Epsilon of the norms").range(0, 1);
  fields
      .add("init_std", init_std,
           "Standard deviation of initial weights (residual projections: / sqrt(2 layers))")
      .range(0, 10);
  fields.add("tie_embeddings", tie_embeddings, "The head shares the embedding's weight");
}

void ModelConfig::resolve(int64_t tokenizer_vocab) {
  const auto round_up = [](int64_t value) { return (value + 63) / 64 * 64; };
  if (kv_heads == 0) kv_heads = heads;
  if (ffn == 0) ffn = round_up(width * 8 / 3);
  if (vocab_size == 0) vocab_size = round_up(tokenizer_vocab);
  if (width % heads)
    throw usage_error("model.width ({}) must be a multiple of model.heads ({}).", width, heads);
  if (heads % kv_heads) {
    throw usage_error("model.heads ({}) must be a multiple of model.kv_heads ({}).", heads, kv_heads);
  }
  if (width / heads % 2) {
    throw usage_error("model.width / model.heads is {}; rotary positions need an even head size.",
                      width / heads);
  }
  if (vocab_size < tokenizer_vocab) {
    throw usage_error("model.vocab_size ({}) is smaller than the tokenizer's vocabulary ({}).", vocab_size,
                      tokenizer_vocab);
  }
}

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const { return at::linear(hidden, head()); }

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed) {
  return std::make_unique<Llama>(config, seed);
}

}  // namespace tightloop
