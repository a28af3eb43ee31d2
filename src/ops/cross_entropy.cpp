#include "ops/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One pass gives the loss and, when asked for, its gradient: by backward() the probabilities would have to be
// computed again.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("cross_entropy(Tensor logits, Tensor targets, bool with_gradient) -> (Tensor, Tensor)");
}

using Loss = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, bool);

template <class T>
float loss_of_row(const T* logits, int64_t target, T* gradient, float* e, int64_t V) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  cpu::Vec most = cpu::broadcast(kNothing);
  cpu::for_vectors(
      V, [&](int64_t i, auto lanes) { most = cpu::larger(cpu::load(logits + i, lanes, kNothing), most); });
  const float largest = cpu::largest(most);
  cpu::Vec sums{};
  cpu::for_vectors(V, [&](int64_t i, auto lanes) {
    const cpu::Vec v = cpu::exp(cpu::load(logits + i, lanes, kNothing) - largest);
    cpu::store(e + i, v, lanes);
    sums += v;
  });
  const float sum = cpu::sum(sums);
  if (gradient) {
    const float scale = 1.0f / sum;
    cpu::for_vectors(
        V, [&](int64_t i, auto lanes) { cpu::store(gradient + i, cpu::load(e + i, lanes) * scale, lanes); });
    gradient[target] = static_cast<T>(e[target] * scale - 1.0f);
  }
  return std::log(sum) + (largest - static_cast<float>(logits[target]));
}

std::tuple<Tensor, Tensor> cross_entropy_cpu(const Tensor& logits_in, const Tensor& targets_in,
                                             bool with_gradient) {
  const Tensor logits = logits_in.contiguous(), targets = targets_in.contiguous();
  const int64_t N = logits.size(0), V = logits.size(1);
  Tensor gradient = with_gradient ? at::empty_like(logits) : Tensor();
  const int64_t* wanted = targets.const_data_ptr<int64_t>();
  std::vector<float> losses(N);
  cpu::with_dtype(logits.scalar_type(), [&]<class T>(T) {
    const T* from = logits.const_data_ptr<T>();
    T* to = with_gradient ? gradient.mutable_data_ptr<T>() : nullptr;
    at::parallel_for(0, N, cpu::grain(2 * V), [&](int64_t begin, int64_t end) {
      std::vector<float> e(V);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t target = wanted[row];
        T* row_gradient = to ? to + row * V : nullptr;
        if (target == kIgnoreIndex) {
          if (row_gradient) std::fill(row_gradient, row_gradient + V, T(0.0f));
          continue;
        }
        TORCH_CHECK(target >= 0 && target < V, "cross_entropy: target ", target, " in row ", row,
                    " is not a token of a vocabulary of ", V);
        losses[row] = loss_of_row(from + row * V, target, row_gradient, e.data(), V);
      }
    });
  });
  double total = 0;  // in row order: independent of the threads
  for (const float loss : losses) total += loss;
  return {at::scalar_tensor(total, at::kFloat), gradient};
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("cross_entropy", cross_entropy_cpu); }

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets,
                        bool with_gradient) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<Loss>("tightloop::cross_entropy");
    auto [sum, gradient] = kernel.call(logits, targets, with_gradient);
    context->save_for_backward({gradient});
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& dsum) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor gradient = context->get_saved_variables()[0];
    // Losses are summed and divided once per step, so this is nearly always one; the pass over N x V is then
    // saved.
    const float factor = dsum[0].item<float>();
    return {factor == 1.0f ? gradient : gradient * factor, Tensor(), Tensor()};
  }
};

void check(const Tensor& logits, const Tensor& targets) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1 && targets.size(0) == logits.size(0),
              "cross_entropy: logits must be (rows, vocabulary) and targets (rows)");
  TORCH_CHECK(targets.scalar_type() == at::kLong, "cross_entropy: targets must be int64");
}

}  // namespace

LossSum cross_entropy(const Tensor& logits, const Tensor& targets) {
  check(logits, targets);
  if (!has_kernel(logits) || !logits.is_cpu()) return cross_entropy_plain(logits, targets);
  const bool with_gradient = logits.requires_grad() && c10::GradMode::is_enabled();
  return {CrossEntropy::apply(logits, targets, with_gradient), (targets != kIgnoreIndex).sum()};
}

LossSum cross_entropy_plain(const Tensor& logits, const Tensor& targets) {
  check(logits, targets);
  const Tensor wide = logits.to(compute_dtype(logits));
  return {at::cross_entropy_loss(wide, targets, {}, at::Reduction::Sum, kIgnoreIndex),
          (targets != kIgnoreIndex).sum()};
}

}  // namespace tightloop::ops
