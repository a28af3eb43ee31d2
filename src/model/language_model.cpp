#include "model/language_model.h"

#include <fmt/core.h>

#include "core/error.h"
#include "model/family.h"

namespace tightloop {

const std::vector<at::Tensor>& LanguageModel::block_parameters(int64_t layer) {
  for (auto next = static_cast<int64_t>(block_parameters_.size()); next <= layer; ++next) {
    auto& own = block_parameters_.emplace_back();
    const auto prefix = fmt::format("blocks.{}.", next);
    for (const auto& parameter : parameters_.all())
      if (parameter.name.starts_with(prefix)) own.push_back(parameter.value);
    // Recomputed without them, the block's weights would get no gradient, in silence.
    if (own.empty())
      throw usage_error(
          "model.family {}: no parameter is called '{}...'. The parameters of block N have names that begin "
          "with "
          "blocks.N., which is how activation checkpointing finds them.",
          config_.family, prefix);
  }
  return block_parameters_[layer];
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, Seed seed) {
  if (config.translates())
    throw usage_error("a seq2seq model translates; it cannot continue a text. Use tightloop translate.");
  auto made = family_of(config).make(config, seed);
  auto& model = dynamic_cast<LanguageModel&>(*made);
  made.release();
  return std::unique_ptr<LanguageModel>(&model);
}

}  // namespace tightloop
