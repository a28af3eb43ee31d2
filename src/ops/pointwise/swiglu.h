#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// silu(gate) * up, where gate_up (..., 2F) holds the gate in its first half and up in its second; gives
/// (..., F). Computed in fp32, rounded once to the input's dtype.
at::Tensor swiglu(const at::Tensor& gate_up);

/// The same in ordinary ATen.
at::Tensor swiglu_plain(const at::Tensor& gate_up);

}  // namespace tightloop::ops
