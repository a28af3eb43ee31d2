#include "ops/few_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "core/cpu.h"
#include "ops/cpu_rows.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("few_rows_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
}
using FewRows = Tensor(const Tensor&, const Tensor&, const Optional&);

const auto& few_rows_op() {
  static const auto op = find_operator<FewRows>("tightloop::few_rows_linear");
  return op;
}

Tensor few_rows_cpu(const Tensor& x_in, const Tensor& weight, const Optional& bias_in) {
  const Tensor x = x_in.contiguous(), bias = bias_in ? bias_in->contiguous() : Tensor();
  auto shape = x.sizes().vec();
  const int64_t I = shape.back(), O = weight.size(0), N = I ? x.numel() / I : 0;
  shape.back() = O;
  Tensor y = at::empty(shape, x.options());
  cpu::with_dtype(x.scalar_type(), [&]<class T>(T) {
    cpu::RowsOfX rows(x.const_data_ptr<T>(), N, I);
    const T* const w = weight.const_data_ptr<T>();
    const T* const added = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
    T* const out = y.mutable_data_ptr<T>();
    cpu::for_products(
        rows, N, O, I,
        [&](int64_t o) {
          return [row = w + o * I](int64_t i, auto lanes) { return cpu::load(row + i, lanes); };
        },
        [&](int64_t n, int64_t o, float sum) {
          out[n * O + o] = static_cast<T>(added ? sum + static_cast<float>(added[o]) : sum);
        });
  });
  return y;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("few_rows_linear", few_rows_cpu); }

/// Rows up to which the kernel of a device is faster than torch's product with a weight of so many outputs.
/// On an H200 (bf16, widths of 1,024 to 3,072, graphs) 1 to 8 rows took 0.25 to 0.97 of cuBLAS's time with
/// any weight; 16 took 0.69 to 0.81 with 1,024 outputs, and 1.08 to 1.56 with 4,096 or more. On two cores
/// with AVX-512 fp32 took 0.2 to 0.5 of torch's time; bf16, for which that CPU has instructions, 0.8 to 0.9
/// for one row, 1 to 1.15 for two and 1.3 to 1.5 for four.
int64_t most_rows(const Tensor& x, int64_t outputs) {
  constexpr int64_t kFewOutputs = 2048;
  if (x.is_cuda()) return outputs <= kFewOutputs ? 16 : 8;
  static const bool torch_has_bf16 = cpu_has("avx512_bf16");
  return x.scalar_type() == at::kBFloat16 && torch_has_bf16 ? 1 : 4;
}

/// Whether the kernels multiply by this weight, without gradients.
bool multiplies(const Tensor& x, const Tensor& weight, const Optional& bias) {
  for (const Tensor* other : {&weight, bias ? &*bias : &weight})
    if (other->scalar_type() != x.scalar_type() || other->device() != x.device() ||
        (at::GradMode::is_enabled() && other->requires_grad()))
      return false;
  return has_kernel(x) && !(at::GradMode::is_enabled() && x.requires_grad()) &&
         weight.size(1) * x.element_size() % 16 == 0 && is_flat(weight);
}

}  // namespace

bool few_rows_take(const Tensor& x, const Tensor& weight, const Optional& bias) {
  if (weight.dim() != 2 || x.dim() == 0 || x.numel() == 0 || weight.size(0) == 0) return false;
  const int64_t I = weight.size(1);
  return x.size(-1) == I && x.numel() <= most_rows(x, weight.size(0)) * I && registered(few_rows_op(), x) &&
         multiplies(x, weight, bias);
}

bool few_made_rows_take(const Tensor& x, const Tensor& weight, const Optional& bias) {
  // Each block makes all rows again. Of a Hopper's multiprocessor SwiGLU of four takes half as long as it
  // waits for the weight, of eight longer; and a block has 48 KB of shared memory without asking.
  constexpr int64_t kMostRows = 4, kMostBytes = 40 << 10;
  if (weight.dim() != 2 || x.dim() == 0 || x.numel() == 0 || weight.size(0) == 0) return false;
  const int64_t N = x.numel() / x.size(-1);
  return N <= kMostRows && x.element_size() == 2 && N * weight.size(1) * 2 <= kMostBytes &&
         multiplies(x, weight, bias);
}

Tensor few_rows_linear(const Tensor& x, const Tensor& weight, const Optional& bias) {
  at::AutoDispatchBelowADInplaceOrView below;
  return few_rows_op().call(x, weight, bias);
}

}  // namespace tightloop::ops
