#include "ops/attention/document_bounds.h"

#include <ATen/TensorOperators.h>

namespace tightloop::ops {

const at::Tensor& DocumentBounds::lengths() {
  if (!lengths_.defined()) lengths_ = bounds_.narrow(0, 1, documents()) - bounds_.narrow(0, 0, documents());
  return lengths_;
}

const at::Tensor& DocumentBounds::begins(int64_t stride) {
  for (const auto& [held, begins] : begins_)
    if (held == stride) return begins;
  return begins_.emplace_back(stride, bounds_ * stride).second;
}

}  // namespace tightloop::ops
