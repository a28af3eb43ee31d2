#include "model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>

#include "model/families/seq2seq.h"
#include "ops/linear.h"

namespace tightloop {

at::Tensor Model::logits(const at::Tensor& hidden) const {
  const Head head = this->head();
  const auto logits = ops::linear(hidden, head.weight_VD);
  if (head.softcap == 0) return logits;
  return at::tanh(logits.to(at::kFloat) / head.softcap) * head.softcap;
}

std::unique_ptr<Model> make_shapes(const ModelConfig& config) {
  const auto seed = Seed::shapes_only();
  if (config.translates()) return std::make_unique<Seq2Seq>(config, seed);
  return make_model(config, seed);
}

}  // namespace tightloop
