#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "cuda/operator.h"
#include "ops/decode/sample_tokens_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> sample_tokens(const Tensor& logits_in, const Tensor& values_in,
                                         const Tensor& numbers_in, const std::optional<Tensor>& seen,
                                         bool logprobs) {
  const Guard guard(logits_in.device());
  const Tensor logits = logits_in.stride(1) == 1 ? logits_in : logits_in.contiguous();
  const Tensor values = values_in.contiguous(), numbers = numbers_in.contiguous();
  const int64_t N = logits.size(0);
  const auto options = logits.options();
  ops::cuda::SampleTokens call{.dtype = dtype_of(logits),
                               .logits = logits.const_data_ptr(),
                               .values = values.const_data_ptr<double>(),
                               .numbers = numbers.const_data_ptr<int64_t>(),
                               .seen = seen ? seen->mutable_data_ptr<bool>() : nullptr,
                               .rows = N,
                               .V = logits.size(1),
                               .stride = logits.stride(0)};
  const int64_t chunks = call.chunks();
  constexpr int64_t kStateInts = sizeof(ops::cuda::SampleState) / sizeof(int32_t);
  const Tensor states = at::zeros({N, kStateInts}, options.dtype(at::kInt));
  const Tensor sums = at::empty({N, chunks}, options.dtype(at::kLong));
  const Tensor candidates = at::empty({N, ops::cuda::kSampleCandidates}, options.dtype(at::kLong));
  Tensor ids = at::empty({N}, options.dtype(at::kLong)), raw_sums, chances;
  if (logprobs) {
    raw_sums = at::empty({N, chunks}, options.dtype(at::kFloat));
    chances = at::empty({N}, options.dtype(at::kFloat));
  }
  call.states = static_cast<ops::cuda::SampleState*>(states.mutable_data_ptr());
  call.sums = static_cast<uint64_t*>(sums.mutable_data_ptr());
  call.raw_sums = floats_of(raw_sums);
  call.candidates = static_cast<uint64_t*>(candidates.mutable_data_ptr());
  call.ids = ids.mutable_data_ptr<int64_t>();
  call.logprobs = floats_of(chances);
  run(call);
  return {ids, chances};
}

TIGHTLOOP_KERNELS(m) { m.impl("sample_tokens", sample_tokens); }

}  // namespace

}  // namespace tightloop::cuda
