#include "model/language_model.h"

#include <fmt/core.h>

#include "core/error.h"
#include "model/families/gpt2.h"
#include "model/families/llama.h"
#include "model/families/nanochat.h"

namespace tightloop {

std::vector<at::Tensor> LanguageModel::run_block(int64_t layer, const Pass& pass, const BlockFunction& block,
                                                 const std::vector<at::Tensor>& inputs) {
  if (!pass.training || pass.cache || layer >= config_.recomputed_blocks()) return block(inputs);
  for (auto next = static_cast<int64_t>(block_parameters_.size()); next <= layer; ++next) {
    auto& own = block_parameters_.emplace_back();
    const auto prefix = fmt::format("blocks.{}.", next);
    for (const auto& parameter : parameters_.all())
      if (parameter.name.starts_with(prefix)) own.push_back(parameter.value);
  }
  return recomputed(block, inputs, block_parameters_[layer]);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, Seed seed) {
  if (config.translates())
    throw usage_error("a seq2seq model translates; it cannot continue a text. Use tightloop translate.");
  if (config.family == "gpt2") return std::make_unique<Gpt2>(config, seed);
  if (config.family == "nanochat") return std::make_unique<Nanochat>(config, seed);
  return std::make_unique<Llama>(config, seed);
}

}  // namespace tightloop
