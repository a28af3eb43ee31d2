#include "ops/norm/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "ops/column_sums.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Optional = std::optional<Tensor>;

// The first two have a CPU kernel: forward gives y and 1/rms of each row in fp32; backward gives dx in x's
// dtype and dweight in the weight's. The others have a CUDA kernel, which serves without y, too.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("rms_norm_forward(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)");
  m.def("rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor scale) -> (Tensor, Tensor)");
  m.def(
      "add_rms_norm_forward(Tensor x, Tensor? y, Tensor? branch, Tensor? x_scale, Tensor? y_scale, Tensor? "
      "weight, float eps) -> (Tensor sum, Tensor normed, Tensor scale)");
  m.def(
      "add_rms_norm_backward(Tensor? dsum, Tensor? dnormed, Tensor sum, Tensor? x, Tensor? dx_before, "
      "Tensor? x_scale, Tensor? y_scale, Tensor? weight, Tensor scale)"
      " -> (Tensor dx, Tensor dy, Tensor dscales, Tensor dweight)");
}

using AddForward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Optional&, const Optional&,
                                                      const Optional&, const Optional&, const Optional&,
                                                      double);
using AddBackward = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Optional&, const Optional&,
                                                               const Tensor&, const Optional&,
                                                               const Optional&, const Optional&,
                                                               const Optional&, const Optional&,
                                                               const Tensor&);

template <class T>
void forward_rows(const T* x, const float* weight, T* y, float* scale, int64_t rows, int64_t D, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += D, y += D) {
    cpu::Vec squares{};
    cpu::for_vectors(D, [&](int64_t i, auto lanes) {
      const cpu::Vec v = cpu::load(x + i, lanes);
      squares += v * v;
    });
    const float s = 1.0f / std::sqrt(cpu::sum(squares) / static_cast<float>(D) + eps);
    cpu::for_vectors(D, [&](int64_t i, auto lanes) {
      cpu::store(y + i, cpu::load(x + i, lanes) * s * cpu::load(weight + i, lanes), lanes);
    });
    scale[row] = s;
  }
}

// dweight must be zero at first; the rows add to it in order.
template <class T>
void backward_rows(const T* dy, const T* x, const float* weight, const float* scale, T* dx, float* dweight,
                   int64_t rows, int64_t D) {
  for (int64_t row = 0; row < rows; ++row, x += D, dy += D, dx += D) {
    const float s = scale[row];
    cpu::Vec dot{};
    cpu::for_vectors(D, [&](int64_t i, auto lanes) {
      const cpu::Vec v = cpu::load(x + i, lanes) * s;  // the normalised x
      const cpu::Vec g = cpu::load(dy + i, lanes) * v;
      cpu::store(dweight + i, cpu::load(dweight + i, lanes) + g, lanes);
      dot += g * cpu::load(weight + i, lanes);
    });
    const float pull = cpu::sum(dot) / static_cast<float>(D);
    cpu::for_vectors(D, [&](int64_t i, auto lanes) {
      const cpu::Vec v = cpu::load(x + i, lanes) * s;
      cpu::store(dx + i, s * (cpu::load(dy + i, lanes) * cpu::load(weight + i, lanes) - v * pull), lanes);
    });
  }
}

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& x_in, const Tensor& weight_in, double eps) {
  const Tensor x = x_in.contiguous(), weight = weight_in.to(at::kFloat).contiguous();
  const int64_t D = x.size(-1), N = D ? x.numel() / D : 0;
  Tensor y = at::empty_like(x), scale = at::empty({N}, x.options().dtype(at::kFloat));
  const float* w = weight.const_data_ptr<float>();
  float* s = scale.mutable_data_ptr<float>();
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, N, cpu::grain(D), [&](int64_t begin, int64_t end) {
      forward_rows(from + begin * D, w, to + begin * D, s + begin, end - begin, D, static_cast<float>(eps));
    });
  });
  return {y, scale};
}

std::tuple<Tensor, Tensor> backward_cpu(const Tensor& dy_in, const Tensor& x_in, const Tensor& weight_in,
                                        const Tensor& scale) {
  const Tensor dy = dy_in.contiguous(), x = x_in.contiguous(), weight = weight_in.to(at::kFloat).contiguous();
  const int64_t D = x.size(-1), N = D ? x.numel() / D : 0;
  Tensor dx = at::empty_like(x), dweight = at::empty({D}, weight.options());
  const float *w = weight.const_data_ptr<float>(), *s = scale.const_data_ptr<float>();
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T *g = dy.const_data_ptr<T>(), *from = x.const_data_ptr<T>();
    T* to = dx.mutable_data_ptr<T>();
    const auto total = cpu::column_sums(N, D, D, [&](int64_t begin, int64_t end, float* sums) {
      backward_rows(g + begin * D, from + begin * D, w, s + begin, to + begin * D, sums, end - begin, D);
    });
    std::copy(total.begin(), total.end(), dweight.mutable_data_ptr<float>());
  });
  return {dx, dweight.to(weight_in.scalar_type())};
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("rms_norm_forward", forward_cpu);
  m.impl("rms_norm_backward", backward_cpu);
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;  // straight to the kernel, past autograd's fallback
    static const auto kernel =
        find_operator<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, double)>(
            "tightloop::rms_norm_forward");
    auto [y, scale] = kernel.call(x, weight, eps);
    context->save_for_backward({x, weight, scale});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel =
        find_operator<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
            "tightloop::rms_norm_backward");
    const auto saved = context->get_saved_variables();
    auto [dx, dweight] = kernel.call(dy[0], saved[0], saved[1], saved[2]);
    return {dx, dweight, Tensor()};
  }
};

// x, and y with it where there is one: then the sum is a result of its own, and with scales x is one, too.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Optional& y,
                               const Optional& branch, const Optional& x_scale, const Optional& y_scale,
                               const Optional& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AddForward>("tightloop::add_rms_norm_forward");
    auto [sum, normed, scale] = kernel.call(x, y, branch, x_scale, y_scale, weight, eps);
    context->set_materialize_grads(false);
    context->save_for_backward({y ? sum : x, x_scale ? x : Tensor(), or_undefined(x_scale),
                                or_undefined(y_scale), or_undefined(weight), scale});
    context->saved_data["branch"] = branch.has_value();
    if (!y) return {normed};
    if (!x_scale) return {normed, sum};
    return {normed, sum, x.view(x.sizes())};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AddBackward>("tightloop::add_rms_norm_backward");
    const auto saved = context->get_saved_variables();
    const auto flowing = [&](size_t result) { return result < d.size() ? given(d[result]) : std::nullopt; };
    auto [dx, dy, dscales, dweight] =
        kernel.call(flowing(1), flowing(0), saved[0], given(saved[1]), flowing(2), given(saved[2]),
                    given(saved[3]), given(saved[4]), saved[5]);
    const auto scale = [&](int64_t side) {
      return dscales.defined() ? dscales[side].view(saved[2].sizes()) : Tensor();
    };
    const bool branch = context->saved_data["branch"].toBool();
    return {dx, d.size() > 1 ? dy : Tensor(), branch ? dy : Tensor(), scale(0), scale(1), dweight, Tensor()};
  }
};

// x's product comes last, so that its gradient comes first, as the kernel gives them.
Tensor scaled_sum(const Tensor& x, const Tensor& y, const Tensor& branch, const SumScales& scales) {
  const Tensor last = scales.y * (branch.defined() ? y + branch : y);
  return (scales.x * x + last).to(x.scalar_type());  // of fp32 scales with a dimension it would be wide
}

bool alike(const Tensor& x, const Tensor& y) {
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() && x.device() == y.device();
}

bool rms_norm_fits(const Tensor& vector, const Tensor& x) {
  return !vector.defined() || vector.scalar_type() == x.scalar_type() || vector.scalar_type() == at::kFloat;
}

/// Whether the kernel for sums takes rows of this kind.
bool adds(const Tensor& x) {
  static const auto forward = find_operator<AddForward>("tightloop::add_rms_norm_forward");
  return registered(forward, x) && has_short_rows(x);
}

void check(const Tensor& x, const Tensor& weight) {
  TORCH_CHECK(x.dim() > 0 && (!weight.defined() || (weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                                                    weight.device() == x.device())),
              "rms_norm: the weight must hold one value for each element of x's last dimension");
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check(x, weight);
  if (!has_kernel(x) || !rms_norm_fits(weight, x)) return rms_norm_plain(x, weight, eps);
  if (adds(x))
    return AddRmsNorm::apply(x, Optional(), Optional(), Optional(), Optional(), given(weight), eps)[0];
  if (!x.is_cpu()) return rms_norm_plain(x, weight, eps);
  return RmsNorm::apply(x, weight.defined() ? weight : at::ones({x.size(-1)}, at::kFloat), eps);
}

Tensor rms_norm_plain(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = x.to(compute_dtype(x));
  const Tensor normed = wide * at::rsqrt((wide * wide).mean(-1, /*keepdim=*/true) + eps);
  return (weight.defined() ? normed * weight.to(wide.scalar_type()) : normed).to(x.scalar_type());
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& weight, double eps) {
  check(x, weight);
  TORCH_CHECK(alike(x, y), "add_rms_norm: x and y differ in shape, dtype or device");
  if (!has_kernel(x) || !rms_norm_fits(weight, x) || !adds(x)) {
    const Tensor sum = x + y;
    return {sum, rms_norm(sum, weight, eps)};
  }
  const auto made = AddRmsNorm::apply(x, Optional(y), Optional(), Optional(), Optional(), given(weight), eps);
  return {made[1], made[0]};
}

NormedSum add_rms_norm_plain(const Tensor& x, const Tensor& y, const Tensor& weight, double eps) {
  const Tensor sum = x + y;
  return {sum, rms_norm_plain(sum, weight, eps)};
}

MixedSum mix_rms_norm(const Tensor& x, const Tensor& y, const Tensor& branch, double eps,
                      const SumScales& scales) {
  check(x, {});
  TORCH_CHECK(alike(x, y) && (!branch.defined() || alike(x, branch)),
              "mix_rms_norm: x, y and the branch differ in shape, dtype or device");
  TORCH_CHECK(scales.x.defined() && scales.y.defined() && scales.x.numel() == 1 &&
                  alike(scales.x, scales.y) && scales.x.device() == x.device(),
              "mix_rms_norm: the scales must be two numbers of one dtype");
  if (!has_kernel(x) || !rms_norm_fits(scales.x, x) || !adds(x)) {
    const Tensor sum = scaled_sum(x, y, branch, scales);
    return {sum, rms_norm(sum, {}, eps), x};
  }
  const auto made =
      AddRmsNorm::apply(x, Optional(y), given(branch), given(scales.x), given(scales.y), Optional(), eps);
  return {made[1], made[0], made[2]};
}

MixedSum mix_rms_norm_plain(const Tensor& x, const Tensor& y, const Tensor& branch, double eps,
                            const SumScales& scales) {
  const Tensor sum = scaled_sum(x, y, branch, scales);
  return {sum, rms_norm_plain(sum, {}, eps), x};
}

}  // namespace tightloop::ops
