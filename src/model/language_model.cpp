#include "model/language_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include "model/gpt2.h"
#include "model/llama.h"
#include "model/nanochat.h"

namespace tightloop {

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const {
  const Head head = this->head();
  const auto logits = at::linear(hidden, head.weight_VD);
  if (head.softcap == 0) return logits;
  return at::tanh(logits.to(at::kFloat) / head.softcap) * head.softcap;
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, uint64_t seed) {
  if (config.family == "gpt2") return std::make_unique<Gpt2>(config, seed);
  if (config.family == "nanochat") return std::make_unique<Nanochat>(config, seed);
  return std::make_unique<Llama>(config, seed);
}

}  // namespace tightloop
