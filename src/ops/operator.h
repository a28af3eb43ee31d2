#pragma once

// What the operators' .cpp files share.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "ops/config.h"
#include "ops/cpu.h"

namespace tightloop::ops {

/// Whether our kernels take this tensor: fp32 and bf16 everywhere, fp16 on CUDA. The plain twins take the
/// rest.
inline bool has_kernel(const at::Tensor& x) {
  if (plain()) return false;
  return cpu::supports(x.scalar_type()) || (x.is_cuda() && x.scalar_type() == at::kHalf);
}

/// Whether kernels that walk over a whole tensor take it: dense, and starting where a wide access may.
inline bool is_flat(const at::Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

/// Whether kernels that hold a row in registers (ops/rows.cuh) take the rows of x: whole 16 bytes, 16 KB at
/// most.
inline bool has_short_rows(const at::Tensor& x) {
  const int64_t bytes = x.size(-1) * x.element_size();
  return bytes % 16 == 0 && bytes <= 16 << 10;
}

/// The operator registered under this name, for calls that skip the search: keep it in a static.
template <class Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Whether somebody registered a kernel of this operator for the device of x.
inline bool registered(const c10::OperatorHandle& op, const at::Tensor& x) {
  return op.hasKernelForDispatchKey(x.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

/// An undefined tensor as an operator takes it: nothing.
inline std::optional<at::Tensor> given(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

inline at::Tensor or_undefined(const std::optional<at::Tensor>& x) { return x.value_or(at::Tensor()); }

/// The dtype that plain twins compute in: fp32, or fp64 when the input is.
inline at::ScalarType compute_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace tightloop::ops
