#include "ops/pointwise/swiglu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("swiglu_forward(Tensor gate_up) -> Tensor");
  m.def("swiglu_backward(Tensor dy, Tensor gate_up) -> Tensor");
}

template <class T>
void forward_row(const T* gate, const T* up, T* y, int64_t F) {
  cpu::for_vectors(F, [&](int64_t i, auto lanes) {
    const cpu::Vec g = cpu::load(gate + i, lanes);
    cpu::store(y + i, g * cpu::sigmoid(g) * cpu::load(up + i, lanes), lanes);
  });
}

template <class T>
void backward_row(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t F) {
  cpu::for_vectors(F, [&](int64_t i, auto lanes) {
    const cpu::Vec d = cpu::load(dy + i, lanes), g = cpu::load(gate + i, lanes), s = cpu::sigmoid(g);
    cpu::store(dup + i, d * g * s, lanes);
    cpu::store(dgate + i, d * cpu::load(up + i, lanes) * s * (1.0f + g * (1.0f - s)), lanes);
  });
}

Tensor swiglu_forward_cpu(const Tensor& gate_up_in) {
  const Tensor gate_up = gate_up_in.contiguous();
  const int64_t F = gate_up.size(-1) / 2, N = F ? gate_up.numel() / (2 * F) : 0;
  auto shape = gate_up.sizes().vec();
  shape.back() = F;
  Tensor y = at::empty(shape, gate_up.options());
  cpu::with_dtype(gate_up.scalar_type(), [&]<class T>(T) {
    const T* from = gate_up.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, N, cpu::grain(2 * F), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        forward_row(from + 2 * F * row, from + 2 * F * row + F, to + F * row, F);
    });
  });
  return y;
}

Tensor swiglu_backward_cpu(const Tensor& dy_in, const Tensor& gate_up_in) {
  const Tensor dy = dy_in.contiguous(), gate_up = gate_up_in.contiguous();
  const int64_t F = gate_up.size(-1) / 2, N = F ? gate_up.numel() / (2 * F) : 0;
  Tensor d = at::empty_like(gate_up);
  cpu::with_dtype(gate_up.scalar_type(), [&]<class T>(T) {
    const T *g = dy.const_data_ptr<T>(), *from = gate_up.const_data_ptr<T>();
    T* to = d.mutable_data_ptr<T>();
    at::parallel_for(0, N, cpu::grain(4 * F), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = 2 * F * row;
        backward_row(g + F * row, from + at, from + at + F, to + at, to + at + F, F);
      }
    });
  });
  return d;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("swiglu_forward", swiglu_forward_cpu);
  m.impl("swiglu_backward", swiglu_backward_cpu);
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate_up) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<Tensor(const Tensor&)>("tightloop::swiglu_forward");
    context->save_for_backward({gate_up});
    return kernel.call(gate_up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel =
        find_operator<Tensor(const Tensor&, const Tensor&)>("tightloop::swiglu_backward");
    return {kernel.call(dy[0], context->get_saved_variables()[0])};
  }
};

void check(const Tensor& gate_up) {
  TORCH_CHECK(gate_up.dim() > 0 && gate_up.size(-1) % 2 == 0,
              "swiglu: the last dimension must hold gate and up");
}

}  // namespace

Tensor swiglu(const Tensor& gate_up) {
  check(gate_up);
  return has_kernel(gate_up) ? Swiglu::apply(gate_up) : swiglu_plain(gate_up);
}

Tensor swiglu_plain(const Tensor& gate_up) {
  check(gate_up);
  const int64_t F = gate_up.size(-1) / 2;
  const Tensor wide = gate_up.to(compute_dtype(gate_up));
  return (at::silu(wide.narrow(-1, 0, F)) * wide.narrow(-1, F, F)).to(gate_up.scalar_type());
}

}  // namespace tightloop::ops
