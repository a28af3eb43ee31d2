#include "ops/norm/residual_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "ops/column_sums.h"
#include "ops/operator.h"
#include "ops/pointwise/dropout_cpu.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "residual_norm_forward(Tensor x, Tensor? y, Tensor? y_bias, Tensor weight, Tensor bias, float eps,"
      " float p, Tensor? random, int site)"
      " -> (Tensor sum, Tensor normed, Tensor mean, Tensor scale)");
  m.def(
      "residual_norm_backward(Tensor? dsum, Tensor? dnormed, Tensor sum, Tensor weight, Tensor mean,"
      " Tensor scale, bool added, float p, Tensor? random, int site)"
      " -> (Tensor dx, Tensor dy, Tensor dy_bias, Tensor dweight, Tensor dbias)");
}

using Optional = std::optional<Tensor>;

const float* floats(const Tensor& x) { return x.const_data_ptr<float>(); }

std::tuple<Tensor, Tensor, Tensor, Tensor> residual_norm_forward_cpu(
    const Tensor& x, const Optional& y, const Optional& y_bias, const Tensor& weight_in,
    const Tensor& bias_in, double eps, double p, const Optional& random, int64_t site) {
  const int64_t D = x.size(-1), N = D ? x.numel() / D : 0;
  const Tensor weight = weight_in.to(at::kFloat), bias = bias_in.to(at::kFloat);
  const Tensor add = y ? y_bias->to(at::kFloat) : Tensor();
  Tensor sum = y ? at::empty_like(x) : Tensor(), normed = at::empty_like(x);
  Tensor mean = at::empty({N}, weight.options()), scale = at::empty({N}, weight.options());
  const float *w = floats(weight), *b = floats(bias), *a = y ? floats(add) : nullptr;
  float *means = mean.mutable_data_ptr<float>(), *scales = scale.mutable_data_ptr<float>();
  const float count = static_cast<float>(D), epsilon = static_cast<float>(eps);
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T *from = x.const_data_ptr<T>(), *branch = y ? y->const_data_ptr<T>() : nullptr;
    T *sums = y ? sum.mutable_data_ptr<T>() : nullptr, *to = normed.mutable_data_ptr<T>();
    at::parallel_for(0, N, cpu::grain(2 * D), [&](int64_t begin, int64_t end) {
      cpu::RowFactors drop(p, random, site, D);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * D;
        if (branch) {
          const float* factors = drop.row(row);
          cpu::for_vectors(D, [&](int64_t i, auto lanes) {
            cpu::Vec v = cpu::load(branch + at + i, lanes) + cpu::load(a + i, lanes);
            if (factors) v *= cpu::load(factors + i, lanes);
            cpu::store(sums + at + i, cpu::load(from + at + i, lanes) + v, lanes);
          });
        }
        const T* made = branch ? sums + at : from + at;
        cpu::Vec total{}, squares{};
        cpu::for_vectors(D, [&](int64_t i, auto lanes) { total += cpu::load(made + i, lanes); });
        const float m = cpu::sum(total) / count;
        cpu::for_vectors(D, [&](int64_t i, auto lanes) {
          const cpu::Vec v = cpu::load(made + i, lanes, m) - m;
          squares += v * v;
        });
        const float s = 1.0f / std::sqrt(cpu::sum(squares) / count + epsilon);
        cpu::for_vectors(D, [&](int64_t i, auto lanes) {
          const cpu::Vec v = (cpu::load(made + i, lanes) - m) * s;
          cpu::store(to + at + i, v * cpu::load(w + i, lanes) + cpu::load(b + i, lanes), lanes);
        });
        means[row] = m, scales[row] = s;
      }
    });
  });
  return {sum, normed, mean, scale};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> residual_norm_backward_cpu(
    const Optional& dsum_in, const Optional& dnormed_in, const Tensor& sum, const Tensor& weight_in,
    const Tensor& mean, const Tensor& scale, bool added, double p, const Optional& random, int64_t site) {
  const int64_t D = sum.size(-1), N = D ? sum.numel() / D : 0;
  const Tensor dsum = dsum_in ? dsum_in->contiguous() : Tensor();
  const Tensor dnormed = dnormed_in ? dnormed_in->contiguous() : Tensor(), weight = weight_in.to(at::kFloat);
  Tensor dx = at::empty_like(sum), dy = p > 0 ? at::empty_like(sum) : dx;
  Tensor vectors;  // the gradients of y's bias, weight and bias
  const float *w = floats(weight), *means = floats(mean), *scales = floats(scale);
  cpu::with_dtype(sum.scalar_type(), [&]<class T>(T) {
    const T* past = dsum.defined() ? dsum.const_data_ptr<T>() : nullptr;
    const T* flow = dnormed.defined() ? dnormed.const_data_ptr<T>() : nullptr;
    const T* made = sum.const_data_ptr<T>();
    T *to = dx.mutable_data_ptr<T>(), *branch = dy.mutable_data_ptr<T>();
    const auto total = cpu::column_sums(N, 2 * D, 3 * D, [&](int64_t begin, int64_t end, float* sums) {
      float *of_branch = sums, *of_weight = sums + D, *of_bias = sums + 2 * D;
      cpu::RowFactors drop(p, random, site, D);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * D;
        const float m = means[row], s = scales[row];
        cpu::Vec shift{}, dot{};
        if (flow) {
          cpu::for_vectors(D, [&](int64_t i, auto lanes) {
            const cpu::Vec v = (cpu::load(made + at + i, lanes) - m) * s, d = cpu::load(flow + at + i, lanes);
            const cpu::Vec g = d * cpu::load(w + i, lanes);
            cpu::store(of_weight + i, cpu::load(of_weight + i, lanes) + d * v, lanes);
            cpu::store(of_bias + i, cpu::load(of_bias + i, lanes) + d, lanes);
            shift += g, dot += g * v;
          });
        }
        const float pull = cpu::sum(dot) / static_cast<float>(D);
        const float middle = cpu::sum(shift) / static_cast<float>(D);
        const float* factors = drop.row(row);
        cpu::for_vectors(D, [&](int64_t i, auto lanes) {
          cpu::Vec d = past ? cpu::load(past + at + i, lanes) : cpu::Vec{};
          if (flow) {
            const cpu::Vec v = (cpu::load(made + at + i, lanes) - m) * s;
            d += s * (cpu::load(flow + at + i, lanes) * cpu::load(w + i, lanes) - middle - v * pull);
          }
          cpu::store(to + at + i, d, lanes);
          if (!added) return;
          if (factors) {
            d *= cpu::load(factors + i, lanes);
            cpu::store(branch + at + i, d, lanes);
          }
          cpu::store(of_branch + i, cpu::load(of_branch + i, lanes) + d, lanes);
        });
      }
    });
    vectors = at::tensor(total).to(weight_in.scalar_type()).view({3, D});
  });
  return {dx, dy, added ? vectors[0] : Tensor(), vectors[1], vectors[2]};
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("residual_norm_forward", residual_norm_forward_cpu);
  m.impl("residual_norm_backward", residual_norm_backward_cpu);
}

using ResidualNormForward = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Tensor&, const Optional&,
                                                                       const Optional&, const Tensor&,
                                                                       const Tensor&, double, double,
                                                                       const Optional&, int64_t);
using ResidualNormBackward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
    const Optional&, const Optional&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
    double, const Optional&, int64_t);

// x, and y with it where there is one: then the sum is a result of its own.
struct ResidualNormFunction : torch::autograd::Function<ResidualNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Optional& y,
                               const Optional& y_bias, const Tensor& weight, const Tensor& bias, double eps,
                               double p, const Optional& random, int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ResidualNormForward>("tightloop::residual_norm_forward");
    auto [sum, normed, mean, scale] = kernel.call(x, y, y_bias, weight, bias, eps, p, random, site);
    context->set_materialize_grads(false);
    context->save_for_backward({y ? sum : x, weight, mean, scale, or_undefined(random)});
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    if (!y) return {normed};
    return {normed, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ResidualNormBackward>("tightloop::residual_norm_backward");
    const auto saved = context->get_saved_variables();
    const bool added = d.size() > 1;
    auto [dx, dy, dy_bias, dweight, dbias] = kernel.call(
        added ? given(d[1]) : std::nullopt, given(d[0]), saved[0], saved[1], saved[2], saved[3], added,
        context->saved_data["p"].toDouble(), given(saved[4]), context->saved_data["site"].toInt());
    return {dx, added ? dy : Tensor(), dy_bias, dweight, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool residual_norm_fits(const Tensor& x, std::initializer_list<const Tensor*> others) {
  static const auto forward = find_operator<ResidualNormForward>("tightloop::residual_norm_forward");
  if (!has_kernel(x) || !registered(forward, x) || !has_short_rows(x)) return false;
  for (const Tensor* other : others)
    if (other->scalar_type() != x.scalar_type() || !is_flat(*other)) return false;
  return is_flat(x);
}

}  // namespace

NormedSum residual_norm(const Tensor& x, const Tensor& y, const Tensor& y_bias, const Tensor& weight,
                        const Tensor& bias, double eps, const Dropout& drop) {
  TORCH_CHECK(x.dim() > 0 && x.sizes() == y.sizes(), "residual_norm: x and y differ in shape");
  for (const Tensor* vector : {&y_bias, &weight, &bias})
    TORCH_CHECK(
        vector->dim() == 1 && vector->size(0) == x.size(-1) && vector->device() == x.device(),
        "residual_norm: biases and weight must hold one value for each element of x's last dimension");
  check(drop, x.device());
  if (!residual_norm_fits(x, {&y, &y_bias, &weight, &bias}))
    return residual_norm_plain(x, y, y_bias, weight, bias, eps, drop);
  const auto made = ResidualNormFunction::apply(x, Optional(y), Optional(y_bias), weight, bias, eps,
                                                drop.rate, given(drop.random), drop.site);
  return {made[1], made[0]};
}

NormedSum residual_norm_plain(const Tensor& x, const Tensor& y, const Tensor& y_bias, const Tensor& weight,
                              const Tensor& bias, double eps, const Dropout& drop) {
  const Tensor sum = x + dropout(y + y_bias, drop);
  return {sum, at::layer_norm(sum, {x.size(-1)}, weight, bias, eps)};
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  for (const Tensor* vector : {&weight, &bias})
    TORCH_CHECK(
        x.dim() > 0 && vector->dim() == 1 && vector->size(0) == x.size(-1) && vector->device() == x.device(),
        "layer_norm: weight and bias must hold one value for each element of x's last dimension");
  if (!residual_norm_fits(x, {&weight, &bias})) return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
  return ResidualNormFunction::apply(x, Optional(), Optional(), weight, bias, eps, 0.0, Optional(), 0)[0];
}

}  // namespace tightloop::ops
