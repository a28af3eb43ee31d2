#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "model/model_config.h"
#include "model/parts/kv_cache.h"
#include "model/parts/parameters.h"
#include "model/parts/recompute.h"

namespace tightloop {

/// What a forward pass is told besides its ids.
struct Pass {
  KvCache* cache = nullptr;  // the ids continue what it holds
  bool training = false;     // dropout is on, and experts' balance is measured
  at::Tensor
      documents_BT{};   // int32: which document each position belongs to, where attention must not cross
  at::Tensor random{};  // int64 scalar on the device: decides what dropout drops, where it is on
};

/// What a forward pass gives: the states that the head reads, and what a mixture of experts reports.
struct Forward {
  at::Tensor hidden_BTD;
  at::Tensor balance{};  // scalar to add to the mean loss (coefficient included), where there are experts
  at::Tensor expert_loads_LE{};  // share of the choices that each expert got, by layer; no gradient
};

/// The last product: logits = cap * tanh(hidden weight^T / cap), without the tanh where cap is 0.
struct Head {
  at::Tensor weight_VD;
  double softcap = 0;
};

/// A causal language model. Shapes: B batch, T time, D width, V vocabulary, L layers, E experts.
class LanguageModel {
 public:
  explicit LanguageModel(const ModelConfig& config, uint64_t seed) : config_(config), parameters_(seed) {}
  virtual ~LanguageModel() = default;

  virtual Forward forward(const at::Tensor& ids_BT, const Pass& pass) = 0;
  Forward forward(const at::Tensor& ids_BT) { return forward(ids_BT, Pass{}); }
  virtual Head head() const = 0;
  /// Scores of the next token: hidden (..., D) -> (..., V), in fp32 where there is a softcap.
  at::Tensor logits(const at::Tensor& hidden) const;

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  at::Device device() const { return head().weight_VD.device(); }

 protected:
  /// Runs the block of a layer, whose parameters are those named blocks.LAYER. In training it keeps only its
  /// inputs where config_ says so; `block` must then not refer to what ends with this pass.
  std::vector<at::Tensor> run_block(int64_t layer, const Pass& pass, const BlockFunction& block,
                                    const std::vector<at::Tensor>& inputs);

  ModelConfig config_;
  Parameters parameters_;

 private:
  std::vector<std::vector<at::Tensor>> block_parameters_;  // by layer, once they were asked for
};

/// Builds the family that the configuration names, with initial weights, fp32 on the CPU. `config` is
/// resolved.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed);

}  // namespace tightloop
