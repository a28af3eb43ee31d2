#pragma once

#include <ATen/TensorOperators.h>

#include <memory>

#include "model/language_model.h"
#include "ops/compare.h"

namespace tightloop::testing {

/// A model whose every weight counts: nanochat, for one, starts with zeros.
inline std::unique_ptr<LanguageModel> model_of(const ModelConfig& config) {
  auto model = make_model(config, 1);
  uint64_t seed = 0;
  for (const auto& parameter : model->parameters().all())
    parameter.value.detach().add_(random_tensor(parameter.value.sizes(), at::kFloat, ++seed, 0.1));
  return model;
}

}  // namespace tightloop::testing
