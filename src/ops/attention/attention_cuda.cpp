#include "ops/attention/attention.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "cuda/operator.h"
#include "ops/attention/attention_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

ops::cuda::AttentionShape attention_shape(const Tensor& q, const Tensor& k, const Optional& lengths,
                                          bool causal, double p, const Optional& random, int64_t site) {
  return {.dtype = dtype_of(q),
          .B = q.size(0),
          .H = q.size(2),
          .T = q.size(1),
          .S = k.size(1),
          .head = q.size(3),
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.size(3)))),
          .causal = causal,
          .lengths = lengths ? lengths->const_data_ptr<int64_t>() : nullptr,
          .drop = drop_of(p, random, site)};
}

ops::cuda::Heads<const void*> read_heads(const Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1)};
}
ops::cuda::Heads<void*> written_heads(const Tensor& x) {
  return {x.mutable_data_ptr(), x.stride(0), x.stride(1)};
}

std::tuple<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Optional& lengths, bool causal, double p,
                                             const Optional& random, int64_t site) {
  const Guard guard(q.device());
  const int64_t B = q.size(0), T = q.size(1), H = q.size(2);
  Tensor y = at::empty(q.sizes(), q.options()), lse = at::empty({B, H, T}, q.options().dtype(at::kFloat));
  run(ops::cuda::AttentionForward{.shape = attention_shape(q, k, lengths, causal, p, random, site),
                                  .q = read_heads(q),
                                  .k = read_heads(k),
                                  .v = read_heads(v),
                                  .y = y.mutable_data_ptr(),
                                  .lse = lse.mutable_data_ptr<float>()});
  return {y, lse};
}

void attention_backward(const Tensor& dy_in, const Tensor& y, const Tensor& lse, const Tensor& q,
                        const Tensor& k, const Tensor& v, const Optional& lengths, bool causal, double p,
                        const Optional& random, int64_t site, Tensor& dq, Tensor& dk, Tensor& dv) {
  const Guard guard(q.device());
  const Tensor dy = dense(dy_in);
  run(ops::cuda::AttentionBackward{.shape = attention_shape(q, k, lengths, causal, p, random, site),
                                   .q = read_heads(q),
                                   .k = read_heads(k),
                                   .v = read_heads(v),
                                   .y = y.const_data_ptr(),
                                   .dy = dy.const_data_ptr(),
                                   .lse = lse.const_data_ptr<float>(),
                                   .dq = written_heads(dq),
                                   .dk = written_heads(dk),
                                   .dv = written_heads(dv)});
}

TIGHTLOOP_KERNELS(m) {
  m.impl("attention_forward", attention_forward);
  m.impl("attention_backward", attention_backward);
}

}  // namespace

}  // namespace tightloop::cuda
