#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// linear(swiglu(gate_up), weight): the second half of a SwiGLU feed-forward.
/// Decoding up to 4 tokens on a GPU, both are one kernel, in 16 bits and without gradients: each block of the
/// product makes its rows itself, rounded as swiglu's are, so that these are the bits of the two operators
/// one after the other, which all else takes.
at::Tensor swiglu_linear(const at::Tensor& gate_up, const at::Tensor& weight);

/// The same in ordinary ATen.
at::Tensor swiglu_linear_plain(const at::Tensor& gate_up, const at::Tensor& weight);

}  // namespace tightloop::ops
