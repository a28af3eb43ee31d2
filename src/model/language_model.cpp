#include "model/language_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>
#include <fmt/core.h>

#include "core/error.h"
#include "model/families/gpt2.h"
#include "model/families/llama.h"
#include "model/families/nanochat.h"
#include "ops/linear.h"

namespace tightloop {

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const {
  const Head head = this->head();
  const auto logits = ops::linear(hidden, head.weight_VD);
  if (head.softcap == 0) return logits;
  return at::tanh(logits.to(at::kFloat) / head.softcap) * head.softcap;
}

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

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed) {
  if (config.translates())
    throw usage_error("a seq2seq model translates; it cannot continue a text. Use tightloop translate.");
  if (config.family == "gpt2") return std::make_unique<Gpt2>(config, seed);
  if (config.family == "nanochat") return std::make_unique<Nanochat>(config, seed);
  return std::make_unique<Llama>(config, seed);
}

}  // namespace tightloop
