#include "model/parts/kv_pages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace tightloop {

std::pair<at::Tensor, at::Tensor> KvPages::layer(int64_t layer, const at::Tensor& like) {
  auto& [keys, values] = layers_[static_cast<size_t>(layer)];
  if (!keys.defined()) {
    const std::vector<int64_t> shape{pages_, like.size(-2), kPage, like.size(-1)};
    keys = at::empty(shape, like.options()), values = at::empty(shape, like.options());
  }
  return {keys, values};
}

at::Tensor KvPages::counters(int64_t count, at::Device device) {
  constexpr int64_t kAtLeast = 1 << 14;
  if (counters_.empty() || counters_.back().numel() < count)
    counters_.push_back(at::zeros({std::max(count, kAtLeast)}, at::TensorOptions(at::kInt).device(device)));
  return counters_.back();
}

}  // namespace tightloop
