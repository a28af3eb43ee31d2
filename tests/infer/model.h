#pragma once

#include <memory>

#include "model/language_model.h"

namespace tightloop::testing {

/// A tiny random model with strong opinions.
inline std::unique_ptr<LanguageModel> small_model(int64_t vocab_size = 40) {
  ModelConfig config;
  config.layers = 2, config.width = 32, config.heads = 4, config.init_std = 0.3, config.context = 64;
  config.resolve(vocab_size, 0);
  return make_model(config, 7);
}

}  // namespace tightloop::testing
