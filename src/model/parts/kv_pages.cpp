#include "model/parts/kv_pages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/attention/paged_attention.h"

namespace tightloop {

std::pair<at::Tensor, at::Tensor> KvPages::layer(int64_t layer, const at::Tensor& like) {
  auto& [keys, values] = layers_[static_cast<size_t>(layer)];
  if (!keys.defined()) {
    const std::vector<int64_t> shape{pages_, like.size(-2), page_, like.size(-1)};
    keys = at::empty(shape, like.options()), values = at::empty(shape, like.options());
  }
  return {keys, values};
}

void KvPages::reserve(int64_t pages) {
  if (pages <= pages_) return;
  for (auto& [keys, values] : layers_)
    for (at::Tensor* held : {&keys, &values}) {
      if (!held->defined()) continue;
      auto shape = held->sizes().vec();
      shape[0] = pages;
      const at::Tensor larger = at::empty(shape, held->options());
      larger.narrow(0, 0, pages_).copy_(*held);
      *held = larger;
    }
  pages_ = pages;
}

at::Tensor KvPages::counters(int64_t count, at::Device device) {
  constexpr int64_t kAtLeast = 1 << 14;
  if (counters_.empty() || counters_.back().numel() < count)
    counters_.push_back(at::zeros({std::max(count, kAtLeast)}, at::TensorOptions(at::kInt).device(device)));
  return counters_.back();
}

at::Tensor attend_to_pages(const PagedTokens& tokens, int64_t layer, const at::Tensor& q_NHS,
                           const at::Tensor& k_NKS, const at::Tensor& v_NKS, int64_t window,
                           std::optional<double> scale) {
  const auto [keys, values] = tokens.pages.layer(layer, k_NKS);
  const bool shared = q_NHS.is_cuda() && tokens.apart;  // several blocks may have one token's keys
  return ops::paged_attention(
      {.q_NHS = q_NHS,
       .k_NKS = k_NKS,
       .v_NKS = v_NKS,
       .key_pages = keys,
       .value_pages = values,
       .positions_N = tokens.positions_N,
       .rows_N = tokens.rows_N,
       .tables = tokens.tables,
       .counters =
           shared ? tokens.pages.counters(q_NHS.size(0) * q_NHS.size(1), q_NHS.device()) : at::Tensor(),
       .window = window,
       .scale = scale,
       .apart = tokens.apart});
}

}  // namespace tightloop
