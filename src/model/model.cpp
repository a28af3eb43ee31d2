#include "model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>

#include "model/family.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"

namespace tightloop {

Head Model::used_head() const {
  Head head = this->head();
  if (packed_head_.defined()) head.weight_VD = packed_head_;
  return head;
}

at::Tensor Model::logits(const at::Tensor& hidden) const {
  const Head head = used_head();
  const ops::WithoutFp8 as_exported;
  const auto logits = ops::linear(hidden, head.weight_VD);
  if (head.softcap == 0) return logits;
  return at::tanh(logits.to(at::kFloat) / head.softcap) * head.softcap;
}

std::unique_ptr<Model> make_shapes(const ModelConfig& config) {
  return family_of(config).make(config, Seed::shapes_only());
}

}  // namespace tightloop
