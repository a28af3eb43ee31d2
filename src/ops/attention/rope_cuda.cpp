#include "ops/attention/rope_launch.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/operator.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor rope(const Tensor& x_in, const Tensor& cos_in, const Tensor& sin_in, int64_t offset, bool backwards,
            const std::optional<Tensor>& positions) {
  const Guard guard(x_in.device());
  const Tensor x = x_in.stride(-1) == 1 ? x_in : x_in.contiguous();
  const Tensor cos = cos_in.contiguous(), sin = sin_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  run(ops::cuda::Rope{.dtype = dtype_of(x),
                      .x = x.const_data_ptr(),
                      .cos = cos.const_data_ptr<float>(),
                      .sin = sin.const_data_ptr<float>(),
                      .y = y.mutable_data_ptr(),
                      .batch = x.size(0),
                      .length = x.size(1),
                      .heads = x.size(2),
                      .half = x.size(3) / 2,
                      .stride_batch = x.stride(0),
                      .stride_length = x.stride(1),
                      .stride_head = x.stride(2),
                      .offset = offset,
                      .backwards = backwards,
                      .positions = positions ? positions->const_data_ptr<int32_t>() : nullptr});
  return y;
}

TIGHTLOOP_KERNELS(m) { m.impl("rope", rope); }

}  // namespace

}  // namespace tightloop::cuda
