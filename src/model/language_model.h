#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "model/kv_cache.h"
#include "model/parameters.h"

namespace tightloop {

class Fields;

/// Section "model": the sizes of a decoder.
struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 4, width = 128, heads = 4, kv_heads = 0, ffn = 0, vocab_size = 0;
  double rope_theta = 10000, norm_eps = 1e-6, init_std = 0.02;
  bool tie_embeddings = true;

  void describe(Fields& fields);
  /// Fills in what 0 stands for (kv_heads, ffn, vocab_size) and checks that the sizes fit together.
  void resolve(int64_t tokenizer_vocab);
};

/// A causal language model. Shapes: B batch, T time, D width, V vocabulary.
class LanguageModel {
 public:
  explicit LanguageModel(const ModelConfig& config, uint64_t seed) : config_(config), parameters_(seed) {}
  virtual ~LanguageModel() = default;

  /// Final hidden states (B, T, D) of ids (B, T). With a cache, the ids continue what the cache holds.
  virtual at::Tensor hidden(const at::Tensor& ids_BT, KvCache* cache = nullptr) = 0;
  /// The head's weight, (V, D).
  virtual const at::Tensor& head() const = 0;
  /// Scores of the next token: hidden (..., D) -> (..., V).
  at::Tensor logits(const at::Tensor& hidden) const;

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  at::Device device() const { return head().device(); }

 protected:
  ModelConfig config_;
  Parameters parameters_;
};

/// Builds the family that the configuration names, with initial weights, fp32 on the CPU. `config` is
/// resolved.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed);

}  // namespace tightloop
