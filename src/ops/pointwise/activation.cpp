#include "ops/pointwise/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ops/column_sums.h"
#include "ops/operator.h"
#include "ops/pointwise/dropout_cpu.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("activation_forward(Tensor x, Tensor? bias, int kind, float p, Tensor? random, int site) -> Tensor");
  m.def(
      "activation_backward(Tensor dy, Tensor x, Tensor? bias, int kind, float p, Tensor? random, int site)"
      " -> (Tensor dx, Tensor dbias)");
}

using Optional = std::optional<Tensor>;

struct Curve {
  cpu::Vec value, slope;
};

/// erf to 1.5e-7 (Abramowitz and Stegun 7.1.26), x >= 0; e is e^(-x^2).
cpu::Vec erf(cpu::Vec x, cpu::Vec e) {
  const cpu::Vec t = 1.0f / (1.0f + 0.3275911f * x);
  const cpu::Vec series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return 1.0f - series * e;
}

// What is not used of the two costs nothing: the compiler drops it.
template <ActivationKind kKind>
inline __attribute__((always_inline)) Curve curve(cpu::Vec z) {
  const cpu::Vec zero{}, one = cpu::broadcast(1.0f);
  if constexpr (kKind == ActivationKind::kRelu) {
    return {z <= 0.0f ? zero : z, z <= 0.0f ? zero : one};
  } else if constexpr (kKind == ActivationKind::kReluSquare) {
    return {z <= 0.0f ? zero : z * z, z <= 0.0f ? zero : 2.0f * z};
  } else if constexpr (kKind == ActivationKind::kGelu) {
    const cpu::Vec x = z * 0.70710678f, e = cpu::exp(-x * x), size = erf(x < 0.0f ? -x : x, e);
    const cpu::Vec below = 0.5f + 0.5f * (x < 0.0f ? -size : size);
    return {z * below, below + z * e * 0.39894228f};
  } else if constexpr (kKind == ActivationKind::kGeluTanh) {
    const cpu::Vec square = z * z;
    const cpu::Vec s = cpu::sigmoid(z * (1.59576912f + 0.0713548163f * square));
    return {z * s, s + z * s * (1.0f - s) * (1.59576912f + 0.214064449f * square)};
  } else {
    cpu::Vec root;
    for (int64_t i = 0; i < cpu::kLanes; ++i) root[i] = 2.0f * std::sqrt(z[i]);
    return {z, root};
  }
}

template <class Body>
void with_kind(int64_t kind, Body&& body) {
  using enum ActivationKind;
  switch (static_cast<ActivationKind>(kind)) {
    case kRelu:
      return body(std::integral_constant<ActivationKind, kRelu>{});
    case kReluSquare:
      return body(std::integral_constant<ActivationKind, kReluSquare>{});
    case kGelu:
      return body(std::integral_constant<ActivationKind, kGelu>{});
    case kGeluTanh:
      return body(std::integral_constant<ActivationKind, kGeluTanh>{});
    case kSquared:
      return body(std::integral_constant<ActivationKind, kSquared>{});
  }
}

Tensor activation_forward_cpu(const Tensor& x, const Optional& bias, int64_t kind, double p,
                              const Optional& random, int64_t site) {
  const int64_t D = x.size(-1), N = D ? x.numel() / D : 0;
  Tensor y = at::empty_like(x);
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    with_kind(kind, [&](auto of_kind) {
      const T *from = x.const_data_ptr<T>(), *add = bias ? bias->const_data_ptr<T>() : nullptr;
      T* to = y.mutable_data_ptr<T>();
      at::parallel_for(0, N, cpu::grain(D), [&](int64_t begin, int64_t end) {
        cpu::RowFactors drop(p, random, site, D);
        for (int64_t row = begin; row < end; ++row) {
          const float* factors = drop.row(row);
          cpu::for_vectors(D, [&](int64_t i, auto lanes) {
            cpu::Vec z = cpu::load(from + row * D + i, lanes);
            if (add) z += cpu::load(add + i, lanes);
            cpu::Vec v = curve<of_kind>(z).value;
            if (factors) v *= cpu::load(factors + i, lanes);
            cpu::store(to + row * D + i, v, lanes);
          });
        }
      });
    });
  });
  return y;
}

std::tuple<Tensor, Tensor> activation_backward_cpu(const Tensor& dy_in, const Tensor& x, const Optional& bias,
                                                   int64_t kind, double p, const Optional& random,
                                                   int64_t site) {
  const Tensor dy = dy_in.contiguous();
  const int64_t D = x.size(-1), N = D ? x.numel() / D : 0;
  Tensor dx = at::empty_like(x), dbias;
  std::vector<float> total;
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    with_kind(kind, [&](auto of_kind) {
      const T *flow = dy.const_data_ptr<T>(), *from = x.const_data_ptr<T>();
      const T* add = bias ? bias->const_data_ptr<T>() : nullptr;
      T* to = dx.mutable_data_ptr<T>();
      total = cpu::column_sums(N, D, add ? D : 0, [&](int64_t begin, int64_t end, float* sums) {
        cpu::RowFactors drop(p, random, site, D);
        for (int64_t row = begin; row < end; ++row) {
          const float* factors = drop.row(row);
          cpu::for_vectors(D, [&](int64_t i, auto lanes) {
            cpu::Vec z = cpu::load(from + row * D + i, lanes), d = cpu::load(flow + row * D + i, lanes);
            if (add) z += cpu::load(add + i, lanes);
            if (factors) d *= cpu::load(factors + i, lanes);
            d *= curve<of_kind>(z).slope;
            cpu::store(to + row * D + i, d, lanes);
            if (add) cpu::store(sums + i, cpu::load(sums + i, lanes) + d, lanes);
          });
        }
      });
    });
  });
  if (bias) dbias = at::tensor(total).to(bias->scalar_type());
  return {dx, dbias};
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("activation_forward", activation_forward_cpu);
  m.impl("activation_backward", activation_backward_cpu);
}

using ActivationForward = Tensor(const Tensor&, const Optional&, int64_t, double, const Optional&, int64_t);
using ActivationBackward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Optional&, int64_t,
                                                      double, const Optional&, int64_t);

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Optional& bias, int64_t kind,
                        double p, const Optional& random, int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ActivationForward>("tightloop::activation_forward");
    const Tensor y = kernel.call(x, bias, kind, p, random, site);
    // What comes after keeps the result: where that gives the slope, the input may go.
    const bool by_result = kind == static_cast<int64_t>(ActivationKind::kReluSquare) && !bias && p == 0;
    context->save_for_backward({by_result ? y : x, or_undefined(bias), or_undefined(random)});
    context->saved_data["kind"] = by_result ? static_cast<int64_t>(ActivationKind::kSquared) : kind;
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ActivationBackward>("tightloop::activation_backward");
    const auto saved = context->get_saved_variables();
    auto [dx, dbias] = kernel.call(dy[0], saved[0], given(saved[1]), context->saved_data["kind"].toInt(),
                                   context->saved_data["p"].toDouble(), given(saved[2]),
                                   context->saved_data["site"].toInt());
    return {dx, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool activation_fits(const Tensor& x, const Tensor& bias) {
  static const auto forward = find_operator<ActivationForward>("tightloop::activation_forward");
  constexpr int64_t kPack = 16;  // bytes that a thread loads at once
  return has_kernel(x) && registered(forward, x) && x.size(-1) * x.element_size() % kPack == 0 &&
         is_flat(x) && (!bias.defined() || (bias.scalar_type() == x.scalar_type() && is_flat(bias)));
}

}  // namespace

Tensor activation(const Tensor& x, const Tensor& bias, ActivationKind kind, const Dropout& drop) {
  TORCH_CHECK(
      !bias.defined() || (bias.dim() == 1 && bias.size(0) == x.size(-1) && bias.device() == x.device()),
      "activation: the bias must hold one value for each element of x's last dimension");
  check(drop, x.device());
  if (!activation_fits(x, bias)) return activation_plain(x, bias, kind, drop);
  return ActivationFunction::apply(x, given(bias), static_cast<int64_t>(kind), drop.rate, given(drop.random),
                                   drop.site);
}

Tensor activation_plain(const Tensor& x, const Tensor& bias, ActivationKind kind, const Dropout& drop) {
  const Tensor z = bias.defined() ? x + bias : x;
  switch (kind) {
    case ActivationKind::kRelu:
      return dropout(at::relu(z), drop);
    case ActivationKind::kReluSquare:
      return dropout(at::relu(z).square(), drop);
    case ActivationKind::kGelu:
      return dropout(at::gelu(z), drop);
    default:
      return dropout(at::gelu(z, "tanh"), drop);
  }
}

}  // namespace tightloop::ops
