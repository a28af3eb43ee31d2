#include "ops/attention/split_heads_launch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/fp8/largest.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// Heads as the kernels walk over them: x where its strides allow wide accesses, else a copy.
Tensor walkable(const Optional& x) {
  if (!x) return {};
  bool wide = x->stride(3) == 1 && reinterpret_cast<uintptr_t>(x->const_data_ptr()) % 16 == 0;
  for (const int64_t dimension : {0, 1, 2}) wide &= x->stride(dimension) * x->element_size() % 16 == 0;
  return wide ? *x : x->clone(at::MemoryFormat::Contiguous);
}

ops::cuda::StridedHeads strided_heads(const Tensor& x) {
  if (!x.defined()) return {};
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

/// `like` has the heads' dtype.
ops::cuda::SplitHeadsCall split_heads_call(at::IntArrayRef shape, const Tensor& like, int64_t heads,
                                           const Tensor& cos, const Tensor& sin, int64_t offset,
                                           std::optional<double> eps, const Optional& q_weight,
                                           const Optional& k_weight, const Tensor& qkv) {
  return {.dtype = dtype_of(like),
          .cos = cos.const_data_ptr<float>(),
          .sin = sin.const_data_ptr<float>(),
          .batch = shape[0],
          .length = shape[1],
          .heads = heads,
          .kv_heads = (shape[2] - heads) / 2,
          .size = shape[3],
          .offset = offset,
          .normed = eps.has_value(),
          .eps = static_cast<float>(eps.value_or(0)),
          .q_weight = data_of(q_weight),
          .k_weight = data_of(k_weight),
          .float_weight = q_weight && q_weight->scalar_type() == at::kFloat,
          .qkv = strided_heads(qkv)};
}

std::tuple<Tensor, Tensor> split_heads_forward(const Tensor& qkv_in, int64_t heads, const Tensor& cos,
                                               const Tensor& sin, int64_t offset, std::optional<double> eps,
                                               const Optional& q_weight, const Optional& k_weight,
                                               const Optional& positions) {
  const Guard guard(qkv_in.device());
  const Tensor qkv = walkable(qkv_in);
  const int64_t B = qkv.size(0), T = qkv.size(1), K = (qkv.size(2) - heads) / 2, S = qkv.size(3);
  Tensor q = at::empty({B, T, heads, S}, qkv.options()), k = at::empty({B, T, K, S}, qkv.options());
  auto call = split_heads_call(qkv.sizes(), qkv, heads, cos, sin, offset, eps, q_weight, k_weight, qkv);
  if (positions) call.positions = positions->const_data_ptr<int32_t>();
  run(ops::cuda::SplitHeadsForward{.call = call, .q = q.mutable_data_ptr(), .k = k.mutable_data_ptr()});
  return {q, k};
}

std::tuple<Tensor, Tensor, Tensor> split_heads_backward(const Optional& dq_in, const Optional& dk_in,
                                                        const Optional& dv_in, const Optional& qkv_in,
                                                        at::IntArrayRef shape, int64_t heads,
                                                        const Tensor& cos, const Tensor& sin, int64_t offset,
                                                        std::optional<double> eps, const Optional& q_weight,
                                                        const Optional& k_weight) {
  const Tensor& some = dq_in ? *dq_in : dk_in ? *dk_in : *dv_in;
  const Guard guard(some.device());
  const Tensor dq = walkable(dq_in), dk = walkable(dk_in), dv = walkable(dv_in), qkv = walkable(qkv_in);
  Tensor dqkv = at::empty(shape, some.options()), dq_weight, dk_weight, partial;
  if (q_weight) {
    dq_weight = at::empty_like(*q_weight), dk_weight = at::empty_like(*k_weight);
    partial = at::empty({ops::cuda::split_heads_parts(shape[0] * shape[1]), 2 * shape[3]},
                        some.options().dtype(at::kFloat));
  }
  const Tensor most = ops::note_largest(dqkv);
  run(ops::cuda::SplitHeadsBackward{
      .call = split_heads_call(shape, some, heads, cos, sin, offset, eps, q_weight, k_weight, qkv),
      .dq = strided_heads(dq),
      .dk = strided_heads(dk),
      .dv = strided_heads(dv),
      .dqkv = dqkv.mutable_data_ptr(),
      .dq_weight = mutable_data_of(dq_weight),
      .dk_weight = mutable_data_of(dk_weight),
      .most = floats_of(most),
      .partial = q_weight ? partial.mutable_data_ptr<float>() : nullptr});
  return {dqkv, dq_weight, dk_weight};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("split_heads_forward", split_heads_forward);
  m.impl("split_heads_backward", split_heads_backward);
}

}  // namespace

}  // namespace tightloop::cuda
