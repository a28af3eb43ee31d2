#include "ops/attention/document_bounds.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <bit>

namespace tightloop::ops {

int64_t DocumentBounds::rounded(int64_t documents) {
  const int64_t step = std::max<int64_t>(4, std::bit_floor(static_cast<uint64_t>(documents)) / 4);
  return (documents + step - 1) / step * step;
}

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
