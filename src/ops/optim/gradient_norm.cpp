#include "ops/optim/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) { m.def("gradient_norm(Tensor[] tensors) -> Tensor"); }

template <class T>
double sum_of_squares(const T* values, int64_t n) {
  constexpr int64_t kPiece = 1 << 11;  // short, so that fp32 sums stay exact to 1e-6
  std::vector<double> sums((n + kPiece - 1) / kPiece);
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const T* from = values + piece * kPiece;
      cpu::Vec squares{};
      cpu::for_vectors(std::min(kPiece, n - piece * kPiece), [&](int64_t i, auto lanes) {
        const cpu::Vec v = cpu::load(from + i, lanes);
        squares += v * v;
      });
      sums[piece] = cpu::sum(squares);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

Tensor norm_cpu(at::TensorList tensors) {
  double total = 0;
  for (const Tensor& tensor : tensors)
    cpu::with_dtype(tensor.scalar_type(),
                    [&]<class T>(T) { total += sum_of_squares(tensor.const_data_ptr<T>(), tensor.numel()); });
  Tensor norm = at::empty({}, tensors[0].options().dtype(at::kFloat));
  *norm.mutable_data_ptr<float>() = static_cast<float>(std::sqrt(total));
  return norm;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("gradient_norm", norm_cpu); }

}  // namespace

Tensor gradient_norm(const std::vector<Tensor>& tensors) {
  TORCH_CHECK(!tensors.empty(), "gradient_norm of no tensors");
  bool kernels = has_kernel(tensors.front());
  for (const Tensor& tensor : tensors) {
    kernels = kernels && is_flat(tensor) && tensor.scalar_type() == tensors.front().scalar_type();
  }
  if (!kernels) return gradient_norm_plain(tensors);
  static const auto op = find_operator<Tensor(at::TensorList)>("tightloop::gradient_norm");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(tensors);
}

Tensor gradient_norm_plain(const std::vector<Tensor>& tensors) {
  c10::NoGradGuard no_grad;
  std::vector<Tensor> squares;
  for (const Tensor& tensor : tensors) squares.push_back(tensor.to(at::kDouble).pow(2).sum());
  return at::sqrt(at::stack(squares).sum()).to(at::kFloat);
}

}  // namespace tightloop::ops
