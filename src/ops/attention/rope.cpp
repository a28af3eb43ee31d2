#include "ops/attention/rope.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// `backwards` turns the other way, which is the gradient: a rotation's transpose is its inverse.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("rope(Tensor x, Tensor cos, Tensor sin, int offset, bool backwards, Tensor? positions) -> Tensor");
}

using Optional = std::optional<Tensor>;
using Rotate = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, bool, const Optional&);

template <class T>
void rotate_head(const T* x, const float* cos, const float* sin, float sign, T* y, int64_t half) {
  cpu::for_vectors(half, [&](int64_t i, auto lanes) {
    const cpu::Vec a = cpu::load(x + i, lanes), b = cpu::load(x + i + half, lanes);
    const cpu::Vec c = cpu::load(cos + i, lanes), s = cpu::load(sin + i, lanes) * sign;
    cpu::store(y + i, a * c - b * s, lanes);
    cpu::store(y + i + half, b * c + a * s, lanes);
  });
}

Tensor rope_cpu(const Tensor& x_in, const Tensor& cos_in, const Tensor& sin_in, int64_t offset,
                bool backwards, const Optional& positions) {
  const Tensor x = x_in.stride(-1) == 1 ? x_in : x_in.contiguous();
  const Tensor cos = cos_in.contiguous(), sin = sin_in.contiguous();
  const int64_t B = x.size(0), length = x.size(1), H = x.size(2), D = x.size(3), half = D / 2;
  Tensor y = at::empty({B, length, H, D}, x.options());
  const float *c = cos.const_data_ptr<float>(), *s = sin.const_data_ptr<float>();
  const float sign = backwards ? -1.0f : 1.0f;
  const int32_t* own = positions ? positions->const_data_ptr<int32_t>() : nullptr;
  const int64_t stride_b = x.stride(0), stride_t = x.stride(1), stride_h = x.stride(2);
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, B * length, cpu::grain(H * D), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t b = row / length, t = row % length;
        const int64_t angle = (own ? std::max(own[row], 0) : offset + t) * half;
        for (int64_t h = 0; h < H; ++h)
          rotate_head(from + b * stride_b + t * stride_t + h * stride_h, c + angle, s + angle, sign,
                      to + (row * H + h) * D, half);
      }
    });
  });
  return y;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("rope", rope_cpu); }

Tensor call_kernel(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t offset, bool backwards,
                   const Optional& positions = {}) {
  at::AutoDispatchBelowADInplaceOrView below;
  static const auto kernel = find_operator<Rotate>("tightloop::rope");
  return kernel.call(x, cos, sin, offset, backwards, positions);
}

struct Rope : torch::autograd::Function<Rope> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cos, const Tensor& sin,
                        int64_t offset) {
    context->save_for_backward({cos, sin});
    context->saved_data["offset"] = offset;
    return call_kernel(x, cos, sin, offset, /*backwards=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    const auto tables = context->get_saved_variables();
    const int64_t offset = context->saved_data["offset"].toInt();
    return {call_kernel(dy[0], tables[0], tables[1], offset, /*backwards=*/true), Tensor(), Tensor(),
            Tensor()};
  }
};

void check(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t offset, const Tensor& positions) {
  TORCH_CHECK(x.dim() == 4 && x.size(3) % 2 == 0, "rope: x must be (batch, time, heads, even head size)");
  TORCH_CHECK(cos.dim() == 2 && cos.sizes() == sin.sizes() && cos.size(1) == x.size(3) / 2,
              "rope: the tables must be (positions, half the head size)");
  if (positions.defined()) return check_positions(x, positions);
  TORCH_CHECK(offset >= 0 && offset + x.size(1) <= cos.size(0), "rope: positions ", offset, " to ",
              offset + x.size(1), " do not fit tables of ", cos.size(0));
}

}  // namespace

void check_positions(const Tensor& x, const Tensor& positions) {
  TORCH_CHECK(positions.dim() == 1 && positions.numel() == x.size(0) * x.size(1) &&
                  positions.is_contiguous() && positions.scalar_type() == at::kInt &&
                  positions.device() == x.device(),
              "rope: positions must be int32, one for each row of x, on its device");
  TORCH_CHECK(!c10::GradMode::is_enabled() || !x.requires_grad(),
              "rope: rows with positions of their own have no gradient");
}

std::vector<double> rope_frequencies(int64_t head_dim, double theta) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i)
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  return frequencies;
}

std::pair<Tensor, Tensor> rope_tables(int64_t length, const std::vector<double>& frequencies) {
  const auto half = static_cast<int64_t>(frequencies.size());
  Tensor cos = at::empty({length, half}, at::kFloat), sin = at::empty({length, half}, at::kFloat);
  float *c = cos.mutable_data_ptr<float>(), *s = sin.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t t = 0; t < length; ++t) {
      const double angle = static_cast<double>(t) * frequencies[i];
      c[t * half + i] = static_cast<float>(std::cos(angle));
      s[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return {cos, sin};
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t offset, const Tensor& positions) {
  check(x, cos, sin, offset, positions);
  if (!has_kernel(x) || cos.scalar_type() != at::kFloat) return rope_plain(x, cos, sin, offset, positions);
  if (positions.defined()) return call_kernel(x, cos, sin, 0, /*backwards=*/false, positions);
  return Rope::apply(x, cos, sin, offset);
}

Tensor rope_plain(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t offset,
                  const Tensor& positions) {
  check(x, cos, sin, offset, positions);
  const auto wide = compute_dtype(x);
  const int64_t B = x.size(0), T = x.size(1), half = x.size(3) / 2;
  const auto angles = [&](const Tensor& table) {  // (T or B, T, 1, D/2), over all heads
    if (!positions.defined()) return table.narrow(0, offset, T).unsqueeze(1).to(wide);
    return table.index_select(0, positions.clamp_min(0)).view({B, T, 1, half}).to(wide);
  };
  const Tensor c = angles(cos), s = angles(sin);
  const Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  return at::cat({a * c - b * s, b * c + a * s}, 3).to(x.scalar_type());
}

}  // namespace tightloop::ops
