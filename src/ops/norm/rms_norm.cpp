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
#include <vector>

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
      "add_rms_norm_forward(Tensor x, Tensor? y, Tensor? x_scale, Tensor? y_scale, Tensor? weight, float eps)"
      " -> (Tensor sum, Tensor normed, Tensor scale)");
  m.def(
      "add_rms_norm_backward(Tensor? dsum, Tensor? dnormed, Tensor sum, Tensor? x, Tensor? y, Tensor? "
      "x_scale,"
      " Tensor? y_scale, Tensor? weight, Tensor scale)"
      " -> (Tensor dx, Tensor dy, Tensor dscales, Tensor dweight)");
}

using AddForward = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Optional&, const Optional&,
                                                      const Optional&, const Optional&, double);
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
  // A fixed number of rows per partial sum, whatever the threads: the result is the same on 1 core and on 64.
  const int64_t rows = std::max(cpu::grain(D), (N + 63) / 64), parts = N ? (N + rows - 1) / rows : 0;
  std::vector<float> partial(parts * D);
  const float *w = weight.const_data_ptr<float>(), *s = scale.const_data_ptr<float>();
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T *g = dy.const_data_ptr<T>(), *from = x.const_data_ptr<T>();
    T* to = dx.mutable_data_ptr<T>();
    at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        const int64_t begin = part * rows, end = std::min(N, begin + rows);
        backward_rows(g + begin * D, from + begin * D, w, s + begin, to + begin * D, &partial[part * D],
                      end - begin, D);
      }
    });
  });
  float* total = dweight.mutable_data_ptr<float>();
  std::fill(total, total + D, 0.0f);
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t i = 0; i < D; ++i) total[i] += partial[part * D + i];
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

// x, and y with it where there is one: then the sum is a result of its own.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Optional& y,
                               const Optional& x_scale, const Optional& y_scale, const Optional& weight,
                               double eps) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AddForward>("tightloop::add_rms_norm_forward");
    auto [sum, normed, scale] = kernel.call(x, y, x_scale, y_scale, weight, eps);
    context->set_materialize_grads(false);
    context->save_for_backward({y ? sum : x, x_scale ? x : Tensor(), x_scale ? *y : Tensor(),
                                or_undefined(x_scale), or_undefined(y_scale), or_undefined(weight), scale});
    if (!y) return {normed};
    return {normed, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AddBackward>("tightloop::add_rms_norm_backward");
    const auto saved = context->get_saved_variables();
    auto [dx, dy, dscales, dweight] =
        kernel.call(d.size() > 1 ? given(d[1]) : std::nullopt, given(d[0]), saved[0], given(saved[1]),
                    given(saved[2]), given(saved[3]), given(saved[4]), given(saved[5]), saved[6]);
    const auto scale = [&](int64_t side) {
      return dscales.defined() ? dscales[side].view(saved[3].sizes()) : Tensor();
    };
    return {dx, d.size() > 1 ? dy : Tensor(), scale(0), scale(1), dweight, Tensor()};
  }
};

// x's product comes last, so that its gradient comes first, as the kernel gives them.
Tensor scaled_sum(const Tensor& x, const Tensor& y, const SumScales& scales) {
  if (!scales.x.defined()) return x + y;
  const Tensor last = scales.y * y;
  return scales.x * x + last;
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
  if (adds(x)) return AddRmsNorm::apply(x, Optional(), Optional(), Optional(), given(weight), eps)[0];
  if (!x.is_cpu()) return rms_norm_plain(x, weight, eps);
  return RmsNorm::apply(x, weight.defined() ? weight : at::ones({x.size(-1)}, at::kFloat), eps);
}

Tensor rms_norm_plain(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = x.to(compute_dtype(x));
  const Tensor normed = wide * at::rsqrt((wide * wide).mean(-1, /*keepdim=*/true) + eps);
  return (weight.defined() ? normed * weight.to(wide.scalar_type()) : normed).to(x.scalar_type());
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& weight, double eps,
                       const SumScales& scales) {
  check(x, weight);
  TORCH_CHECK(x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() && x.device() == y.device(),
              "add_rms_norm: x and y differ in shape, dtype or device");
  TORCH_CHECK(
      scales.x.defined() == scales.y.defined() &&
          (!scales.x.defined() || (scales.x.numel() == 1 && scales.x.sizes() == scales.y.sizes() &&
                                   scales.x.scalar_type() == scales.y.scalar_type() &&
                                   scales.x.device() == x.device() && scales.y.device() == x.device())),
      "add_rms_norm: the scales must be two numbers of one dtype, or both absent");
  if (!has_kernel(x) || !rms_norm_fits(weight, x) || !rms_norm_fits(scales.x, x) || !adds(x)) {
    const Tensor sum = scaled_sum(x, y, scales);
    return {sum, rms_norm(sum, weight, eps)};
  }
  const auto made = AddRmsNorm::apply(x, Optional(y), given(scales.x), given(scales.y), given(weight), eps);
  return {made[1], made[0]};
}

NormedSum add_rms_norm_plain(const Tensor& x, const Tensor& y, const Tensor& weight, double eps,
                             const SumScales& scales) {
  const Tensor sum = scaled_sum(x, y, scales);
  return {sum, rms_norm_plain(sum, weight, eps)};
}

}  // namespace tightloop::ops
