#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "cuda/operator.h"
#include "ops/decode/likeliest_tokens_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> likeliest_tokens(const Tensor& logits_in, int64_t count,
                                            const std::optional<Tensor>& forbidden,
                                            const std::optional<Tensor>& only) {
  const Guard guard(logits_in.device());
  const Tensor logits = logits_in.stride(1) == 1 ? logits_in : logits_in.contiguous();
  const int64_t N = logits.size(0);
  const Tensor ids = at::empty({N, count}, logits.options().dtype(at::kLong));
  const Tensor log_p = at::empty({N, count}, logits.options().dtype(at::kFloat));
  run(ops::cuda::LikeliestTokens{.dtype = dtype_of(logits),
                                 .logits = logits.const_data_ptr(),
                                 .forbidden = static_cast<const bool*>(data_of(forbidden)),
                                 .only = static_cast<const int64_t*>(data_of(only)),
                                 .ids = ids.mutable_data_ptr<int64_t>(),
                                 .log_p = log_p.mutable_data_ptr<float>(),
                                 .rows = N,
                                 .V = logits.size(1),
                                 .stride = logits.stride(0),
                                 .count = count});
  return {ids, log_p};
}

TIGHTLOOP_KERNELS(m) { m.impl("likeliest_tokens", likeliest_tokens); }

}  // namespace

}  // namespace tightloop::cuda
