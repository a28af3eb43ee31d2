#include "ops/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <cmath>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "adamw_(Tensor(a!)[] masters, Tensor(b!)[] first, Tensor(c!)[] second, Tensor[] gradients, "
      "Tensor(d!)[] values, float[] rate, float[] decay, float beta1, float beta2, float eps, Tensor "
      "control) "
      "-> ()");
}

struct Update {
  float beta1, beta2, eps, divide, step, shrink, root;  // root: 1 / sqrt(1 - beta2^count)
};

cpu::Vec square_root(cpu::Vec v) {
  for (int64_t i = 0; i < cpu::kLanes; ++i) v[i] = std::sqrt(v[i]);
  return v;
}

template <class Gradient, class Value>
void update(const Update& u, float* w, float* m, float* v, const Gradient* gradient, Value* value,
            int64_t n) {
  cpu::for_vectors(n, [&](int64_t i, auto lanes) {
    const cpu::Vec g = cpu::load(gradient + i, lanes) * u.divide;
    cpu::Vec first = cpu::load(m + i, lanes), second = cpu::load(v + i, lanes),
             weight = cpu::load(w + i, lanes);
    first += (1 - u.beta1) * (g - first);
    second += (1 - u.beta2) * (g * g - second);
    weight = weight * u.shrink - u.step * first / (square_root(second) * u.root + u.eps);
    cpu::store(m + i, first, lanes);
    cpu::store(v + i, second, lanes);
    cpu::store(w + i, weight, lanes);
    if (static_cast<void*>(value) != static_cast<void*>(w)) cpu::store(value + i, weight, lanes);
  });
}

void adamw_cpu(at::TensorList masters, at::TensorList first, at::TensorList second, at::TensorList gradients,
               at::TensorList values, at::ArrayRef<double> rate, at::ArrayRef<double> decay, double beta1,
               double beta2, double eps, const Tensor& control_tensor) {
  const float* control = control_tensor.const_data_ptr<float>();
  if (control[AdamwControl::kSkip] != 0) return;
  const double count = control[AdamwControl::kCount];
  for (size_t t = 0; t < masters.size(); ++t) {
    const double lr = control[AdamwControl::kRate] * rate[t];
    const Update u{.beta1 = static_cast<float>(beta1),
                   .beta2 = static_cast<float>(beta2),
                   .eps = static_cast<float>(eps),
                   .divide = 1 / control[AdamwControl::kDivisor],
                   .step = static_cast<float>(lr / (1 - std::pow(beta1, count))),
                   .shrink = static_cast<float>(1 - lr * decay[t]),
                   .root = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count)))};
    float *w = masters[t].mutable_data_ptr<float>(), *m = first[t].mutable_data_ptr<float>(),
          *v = second[t].mutable_data_ptr<float>();
    cpu::with_dtype(gradients[t].scalar_type(), [&]<class G>(G) {
      cpu::with_dtype(values[t].scalar_type(), [&]<class V>(V) {
        const G* gradient = gradients[t].const_data_ptr<G>();
        V* value = values[t].mutable_data_ptr<V>();
        at::parallel_for(0, masters[t].numel(), cpu::grain(1), [&](int64_t begin, int64_t end) {
          update(u, w + begin, m + begin, v + begin, gradient + begin, value + begin, end - begin);
        });
      });
    });
  }
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("adamw_", adamw_cpu); }

bool all_flat(const AdamwTensors& tensors) {
  for (const auto* list :
       {&tensors.masters, &tensors.first, &tensors.second, &tensors.gradients, &tensors.values})
    for (const Tensor& tensor : *list)
      if (!is_flat(tensor)) return false;
  return true;
}

}  // namespace

void adamw_(const AdamwTensors& tensors, const AdamwBetas& betas, const Tensor& control) {
  if (tensors.masters.empty()) return;
  const bool kernels = has_kernel(tensors.gradients.front()) && has_kernel(tensors.values.front()) &&
                       tensors.masters.front().scalar_type() == at::kFloat && all_flat(tensors);
  if (!kernels) return adamw_plain_(tensors, betas, control);
  using Signature = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         at::ArrayRef<double>, at::ArrayRef<double>, double, double, double, const Tensor&);
  static const auto op = find_operator<Signature>("tightloop::adamw_");
  at::AutoDispatchBelowADInplaceOrView below;
  op.call(tensors.masters, tensors.first, tensors.second, tensors.gradients, tensors.values, tensors.rate,
          tensors.decay, betas.beta1, betas.beta2, betas.eps, control);
}

void adamw_plain_(const AdamwTensors& tensors, const AdamwBetas& betas, const Tensor& control) {
  c10::NoGradGuard no_grad;
  const auto [beta1, beta2, eps] = betas;
  const auto skip = control[AdamwControl::kSkip] != 0;
  for (size_t t = 0; t < tensors.masters.size(); ++t) {
    const Tensor &w = tensors.masters[t], &m = tensors.first[t], &v = tensors.second[t];
    const auto dtype = w.scalar_type();
    const auto number = [&](int i) { return control[i].to(dtype); };
    const auto lr = number(AdamwControl::kRate) * tensors.rate[t], count = number(AdamwControl::kCount);
    const auto g = tensors.gradients[t].to(dtype) / number(AdamwControl::kDivisor);
    const auto first = m + (1 - beta1) * (g - m), second = v + (1 - beta2) * (g * g - v);
    const auto bias1 = 1 - at::pow(beta1, count), bias2 = 1 - at::pow(beta2, count);
    const auto next = w * (1 - lr * tensors.decay[t]) - lr / bias1 * first / (at::sqrt(second / bias2) + eps);
    w.copy_(at::where(skip, w, next));
    m.copy_(at::where(skip, m, first));
    v.copy_(at::where(skip, v, second));
    if (!tensors.values[t].is_same(w)) tensors.values[t].copy_(w);
  }
}

}  // namespace tightloop::ops
