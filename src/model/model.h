#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "model/model_config.h"
#include "model/parts/parameters.h"

namespace tightloop {

/// The last product: logits = cap * tanh(hidden weight^T / cap), without the tanh where cap is 0.
struct Head {
  at::Tensor weight_VD;
  double softcap = 0;
};

/// A model of any family: a configuration, parameters and a head.
class Model {
 public:
  Model(const ModelConfig& config, Seed seed) : config_(config), parameters_(seed) {}
  virtual ~Model() = default;

  virtual Head head() const = 0;
  /// The head as it is multiplied with: packed, where its weight is read packed beside what else it is.
  Head used_head() const;
  void use_packed_head(at::Tensor weight) { packed_head_ = std::move(weight); }
  /// Scores of the next token: hidden (..., D) -> (..., V), in fp32 where there is a softcap.
  at::Tensor logits(const at::Tensor& hidden) const;

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  at::Device device() const { return head().weight_VD.device(); }

 protected:
  ModelConfig config_;
  Parameters parameters_;

 private:
  at::Tensor packed_head_;
};

/// The model of a configuration without its weights: names, roles and shapes of the parameters, made by the
/// family's own constructor in no time and no memory. `config` is resolved.
std::unique_ptr<Model> make_shapes(const ModelConfig& config);

}  // namespace tightloop
