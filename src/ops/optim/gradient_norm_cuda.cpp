#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <memory>

#include "cuda/operator.h"
#include "ops/optim/gradient_norm_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor gradient_norm(at::TensorList tensors) {
  const Guard guard(tensors[0].device());
  int64_t pieces = 0;
  for (const Tensor& tensor : tensors) pieces += (tensor.numel() + ops::cuda::kPiece - 1) / ops::cuda::kPiece;
  const auto options = tensors[0].options().dtype(at::kFloat);
  const Tensor sums = at::empty({pieces}, options), norm = at::empty({}, options);
  float* next = sums.mutable_data_ptr<float>();
  const auto table = std::make_unique<ops::cuda::NormTable>();
  const auto flush = [&] {
    run(ops::cuda::PieceSums{.dtype = dtype_of(tensors[0]), .table = table.get(), .sums = next});
    next += table->map.blocks();
    table->map = {};
  };
  for (const Tensor& tensor : tensors) {
    if (table->map.full()) flush();
    table->tensors[table->map.tensors] = tensor.const_data_ptr();
    table->sizes[table->map.tensors] = tensor.numel();
    table->map.add(tensor.numel());
  }
  flush();
  run(ops::cuda::NormOfSums{
      .sums = sums.const_data_ptr<float>(), .count = pieces, .norm = norm.mutable_data_ptr<float>()});
  return norm;
}

TIGHTLOOP_KERNELS(m) { m.impl("gradient_norm", gradient_norm); }

}  // namespace

}  // namespace tightloop::cuda
