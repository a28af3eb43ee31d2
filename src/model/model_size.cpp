#include "model/model_size.h"

#include <algorithm>

namespace tightloop {

namespace {

ModelSize seq2seq_size(const ModelConfig& config) {
  const int64_t D = config.width, F = config.ffn, V = config.vocab_size, E = config.encoder_layers,
                L = config.layers;
  const int64_t matrices = (E + L) * (4 * D * D + 2 * D * F) + L * 4 * D * D;
  const int64_t block = 4 * D + D + F + 4 * D;  // biases of attention and feed-forward, two norms
  const int64_t across = 4 * D + 2 * D;
  const int64_t norms = config.norm_place == "pre" ? 4 * D : 0;
  const bool tied = config.share_embeddings || config.tie_embeddings;
  ModelSize size;
  size.embedding = V * D + (config.share_embeddings ? 0 : config.source_vocab_size * D);
  size.total = size.embedding + matrices + (E + L) * block + L * across + norms + (tied ? 0 : V * D);
  size.active = size.total;
  size.matmul = matrices + V * D;
  return size;
}

}  // namespace

ModelSize model_size(const ModelConfig& config) {
  if (config.translates()) return seq2seq_size(config);
  const int64_t D = config.width, V = config.vocab_size, L = config.layers, S = config.head_size;
  const int64_t qkv = (config.heads + 2 * config.kv_heads) * S;
  const bool gpt2 = config.family == "gpt2", nanochat = config.family == "nanochat";

  int64_t matrices = L * (qkv * D + config.heads * S * D);   // attention
  int64_t vectors = nanochat ? 2 * L + 2 : (2 * L + 1) * D;  // scales, or norms
  int64_t idle = 0;  // parameters of experts that a token does not visit
  if (config.has_experts()) {
    const int64_t expert = 3 * D * config.expert_ffn;
    matrices += L * config.experts * (expert + D);
    idle = L * (config.experts - config.experts_per_token) * expert;
  } else {
    matrices += L * (gpt2 || nanochat ? 2 : 3) * D * config.ffn;
  }
  if (gpt2) vectors += (2 * L + 1) * D + L * (2 * D + config.ffn);  // biases of norms, out, down and up
  if (config.has_qkv_bias()) vectors += L * qkv;
  if (config.has_qk_norm()) vectors += 2 * L * S;

  ModelSize size;
  size.embedding = V * D + (gpt2 ? config.context * D : 0);
  if (nanochat) {
    matrices += ModelConfig::kSmearChannels;
    for (int64_t layer = 0; layer < L; ++layer) {
      if (!config.has_value_embedding(layer)) continue;
      size.embedding += V * config.kv_heads * S;
      matrices += config.kv_heads * ModelConfig::kValueGateChannels;
    }
  }
  size.total = size.embedding + matrices + vectors + (config.tie_embeddings ? 0 : V * D);
  size.active = size.total - idle;
  size.matmul = matrices - idle + V * D;
  return size;
}

double flops_per_token(const ModelConfig& config, int64_t context) {
  double seen = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.window(layer);
    seen += static_cast<double>(window > 0 ? std::min(window, context) : context);
  }
  // A pair of tokens, one of each side: the encoder attends too, and the decoder across.
  if (config.translates()) seen += static_cast<double>((config.encoder_layers + config.layers) * context);
  const auto width = static_cast<double>(config.heads * config.head_size);
  return 6.0 * static_cast<double>(model_size(config).matmul) + 12.0 * width * seen;
}

}  // namespace tightloop
