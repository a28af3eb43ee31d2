#include "ops/attention/paged_attention_launch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <bit>

#include "cuda/operator.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

/// Keys or values of new tokens as the kernels walk over them: x where its strides allow wide accesses.
Tensor wide_rows(const Tensor& x) {
  const auto whole = [&](int64_t elements) { return elements * x.element_size() % 16 == 0; };
  const bool wide = x.stride(2) == 1 && whole(x.stride(0)) && whole(x.stride(1)) &&
                    reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  return wide ? x : x.clone(at::MemoryFormat::Contiguous);
}

Tensor paged_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Tensor& key_pages,
                       const Tensor& value_pages, const Tensor& positions, const Tensor& rows,
                       const Tensor& tables, const std::optional<Tensor>& counters, int64_t window,
                       double scale, bool apart) {
  const Guard guard(q_in.device());
  const Tensor q = dense(q_in), k = wide_rows(k_in), v = wide_rows(v_in);
  const int64_t N = q.size(0), H = q.size(1), S = q.size(2), page = key_pages.size(2);
  Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous), partial;
  const bool counted = counters && counters->numel() >= N * H;
  const int64_t splits = ops::cuda::paged_splits(apart && counted, tables.size(1), page);
  if (splits > 1) partial = at::empty({N, H, splits, S + 2}, q.options().dtype(at::kFloat));
  run(ops::cuda::PagedAttention{.dtype = dtype_of(q),
                                .q = q.const_data_ptr(),
                                .k = k.const_data_ptr(),
                                .v = v.const_data_ptr(),
                                .k_step = k.stride(0),
                                .k_head_step = k.stride(1),
                                .v_step = v.stride(0),
                                .v_head_step = v.stride(1),
                                .key_pages = key_pages.mutable_data_ptr(),
                                .value_pages = value_pages.mutable_data_ptr(),
                                .positions = positions.const_data_ptr<int32_t>(),
                                .rows = rows.const_data_ptr<int32_t>(),
                                .tables = tables.const_data_ptr<int32_t>(),
                                .out = out.mutable_data_ptr(),
                                .tokens = N,
                                .heads = H,
                                .kv_heads = k.size(1),
                                .size = S,
                                .page = page,
                                .pages_of_row = tables.size(1),
                                .window = window,
                                .page_shift = std::countr_zero(static_cast<uint64_t>(page)),
                                .scale = static_cast<float>(scale),
                                .apart = apart,
                                .splits = splits,
                                .partial = floats_of(partial),
                                .counters = splits > 1 ? counters->mutable_data_ptr<int32_t>() : nullptr});
  return out;
}

TIGHTLOOP_KERNELS(m) { m.impl("paged_attention", paged_attention); }

}  // namespace

}  // namespace tightloop::cuda
