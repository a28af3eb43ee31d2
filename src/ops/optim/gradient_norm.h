#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tightloop::ops {

/// sqrt of the sum of all squares over dense tensors of one device and dtype: an fp32 scalar there. Pieces
/// are summed in fp32, their sums in fp64 and in order: the same bits every time.
at::Tensor gradient_norm(const std::vector<at::Tensor>& tensors);

/// The same in ordinary ATen.
at::Tensor gradient_norm_plain(const std::vector<at::Tensor>& tensors);

}  // namespace tightloop::ops
