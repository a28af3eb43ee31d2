#include "model/parts/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "ops/attention/attention_backend.h"

namespace tightloop {

AttentionScope::AttentionScope(const at::Tensor& ids_BT, const Pass& pass, double dropout)
    : cache_(pass.cache),
      paged_(pass.paged),
      documents_BT_(pass.documents_BT),
      random_(pass.random),
      past_(cache_ ? cache_->length() : 0),
      length_(ids_BT.size(1)),
      dropout_(pass.training ? dropout : 0),
      device_(ids_BT.device()) {
  TORCH_CHECK(!cache_ || !documents_BT_.defined(), "a cache holds one document a row");
  TORCH_CHECK(!paged_ || (!cache_ && !documents_BT_.defined() && !pass.training && length_ == 1),
              "a pass over pages is (tokens, 1), without a cache, documents or training");
  TORCH_CHECK(documents_BT_.defined() || !pass.document_bounds.defined(), "bounds need Pass::documents_BT");
  if (pass.document_bounds.defined()) bounds_ = std::make_shared<ops::DocumentBounds>(pass.document_bounds);
  TORCH_CHECK(dropout_ == 0 || random_.defined(), "training with dropout needs Pass::random");
}

ops::Dropout AttentionScope::dropout(int64_t layer, DropoutSite site) const {
  constexpr auto kSites = static_cast<int64_t>(DropoutSite::kCount);
  return {dropout_, random_, layer * kSites + static_cast<int64_t>(site)};
}

at::Tensor AttentionScope::drop(const at::Tensor& x, int64_t layer, DropoutSite site) const {
  return ops::dropout(x, dropout(layer, site));
}

at::Tensor AttentionScope::attend(const at::Tensor& q_BTHS, const at::Tensor& k_BTKS,
                                  const at::Tensor& v_BTKS, int64_t layer, const AttentionOptions& options) {
  if (paged_) return attend_paged(q_BTHS, k_BTKS, v_BTKS, layer, options);
  const int64_t B = q_BTHS.size(0), T = length_;
  const auto q = q_BTHS.transpose(1, 2);
  auto k = k_BTKS.transpose(1, 2), v = v_BTKS.transpose(1, 2);
  if (cache_) std::tie(k, v) = cache_->append(layer, k, v);

  const bool windowed = options.window > 0 && options.window + 1 < past_ + T;
  ops::AttentionCall call{.q_BHTS = q, .k_BKPS = k, .v_BKPS = v, .scale = options.scale};
  call.growing = cache_ != nullptr;
  call.bias_BHTP = options.bias_BHTP;
  if (!cache_) call.qkv_BTJS = options.qkv_BTJS;
  call.drop = dropout(layer, DropoutSite::kAttentionWeights);
  if (T == 1 && !documents_BT_.defined()) {  // one token looks at all that came before
    const int64_t seen = windowed ? options.window + 1 : past_ + 1;
    call.causal = false;
    call.k_BKPS = k.narrow(2, past_ + 1 - seen, seen), call.v_BKPS = v.narrow(2, past_ + 1 - seen, seen);
  } else {
    call.window = windowed ? options.window : 0, call.documents_BT = documents_BT_, call.bounds = bounds_;
    call.mask = [&] { return mask(call.window); };
  }
  return ops::attend(call).transpose(1, 2).reshape({B, T, q_BTHS.size(2) * q_BTHS.size(3)});
}

at::Tensor AttentionScope::attend_paged(const at::Tensor& q_BTHS, const at::Tensor& k_BTKS,
                                        const at::Tensor& v_BTKS, int64_t layer,
                                        const AttentionOptions& options) {
  TORCH_CHECK(!options.bias_BHTP.defined(), "attention over pages has no bias");
  const auto seen = attend_to_pages(*paged_, layer, q_BTHS.squeeze(1), k_BTKS.squeeze(1), v_BTKS.squeeze(1),
                                    options.window, options.scale);
  return seen.view({q_BTHS.size(0), 1, -1});
}

at::Tensor AttentionScope::mask(int64_t window) {
  for (const auto& [held, mask] : masks_)
    if (held == window) return mask;
  const auto keys = at::arange(past_ + length_, at::TensorOptions(at::kLong).device(device_));
  const auto queries = keys.narrow(0, past_, length_).unsqueeze(1);
  auto mask = keys <= queries;  // (T, past + T)
  if (window > 0) mask = mask & (queries - keys <= window);
  if (documents_BT_.defined())  // (B, 1, T, T)
    mask = (mask & (documents_BT_.unsqueeze(2) == documents_BT_.unsqueeze(1))).unsqueeze(1);
  return masks_.emplace_back(window, mask).second;
}

at::Tensor continues_document(const at::Tensor& documents_BT) {
  const int64_t T = documents_BT.size(1);
  auto same = at::zeros(documents_BT.sizes(), documents_BT.options().dtype(at::kBool));
  if (T > 1)
    same.narrow(1, 1, T - 1).copy_(documents_BT.narrow(1, 1, T - 1) == documents_BT.narrow(1, 0, T - 1));
  return same;
}

at::Tensor positions_in_documents(const at::Tensor& documents_BT) {
  const auto t = at::arange(documents_BT.size(1), documents_BT.options().dtype(at::kLong));
  const auto starts = t * continues_document(documents_BT).logical_not();
  return t - std::get<0>(at::cummax(starts, 1));
}

}  // namespace tightloop
