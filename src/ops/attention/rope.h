#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop::ops {

/// theta^(-2i/D) for i in [0, D/2): how fast each pair of elements turns, in radians a position.
std::vector<double> rope_frequencies(int64_t head_dim, double theta);

/// cos and sin of position * frequency for positions [0, length): two fp32 tensors (length, D/2) on the CPU,
/// computed in fp64. Negative frequencies turn the other way.
std::pair<at::Tensor, at::Tensor> rope_tables(int64_t length, const std::vector<double>& frequencies);

/// Rotates x (B, T, H, D), whose first row stands at position `offset`, by the tables' angles. Halves are
/// paired as Llama and Hugging Face pair them: element i with element i + D/2. The tables are fp32 (at least
/// offset + T, D/2) and get no gradient; x may be a strided view (a slice of a fused q/k/v projection); the
/// result is dense, in x's dtype. With `positions` (B T, int32, on x's device) each row has its own in place
/// of the offset, and there is no gradient; below 0 counts as 0, and nobody checks that the tables reach.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t offset = 0,
                const at::Tensor& positions = {});

/// Queries and keys at once; they may differ in the number of heads.
inline std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                              const at::Tensor& sin, int64_t offset = 0) {
  return {rope(q, cos, sin, offset), rope(k, cos, sin, offset)};
}

/// Refuses positions that are not as rope() wants them.
void check_positions(const at::Tensor& x, const at::Tensor& positions);

/// The same in ordinary ATen.
at::Tensor rope_plain(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t offset = 0,
                      const at::Tensor& positions = {});

}  // namespace tightloop::ops
