#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/optim/adamw.h"

namespace tightloop::ops {

/// K matrices (m, n) that Muon updates together. All dense, on one device.
struct MuonTensors {
  std::vector<at::Tensor> masters;    // fp32
  std::vector<at::Tensor> gradients;  // fp32, bf16 or fp16, all alike
  std::vector<at::Tensor> values;     // the weights as the model reads them; may be the masters
  at::Tensor momentum, variance;      // fp32 (K, m, n); (K, m, 1) where m >= n, else (K, 1, n)
};

struct MuonSettings {
  double lr, beta2, decay;
  at::ScalarType compute_dtype;  // of the orthogonalization
};

/// Numbers that live on the device: AdamwControl's, whose count is not used here, and after them the momentum
/// and the scale of the weight decay.
struct MuonControl {
  enum { kMomentum = AdamwControl::kSize, kDecay, kSize };
};

/// Muon, as nanochat has it, for each matrix:
///     g = gradient / divisor;  momentum += (1 - mu) (g - momentum);  x = g + mu (momentum - g), rounded
///     x: rows brought to one norm, norm 1 / 1.01, then five steps of Polar Express; scaled by s_ij, the norm
///     of an orthogonal matrix and the variance evened out by row (m >= n) or column
///     w -= lr sqrt(max(1, m / n)) (s x + decay w, the latter where it does not oppose the former)
///     value = w, rounded
/// x in the compute dtype, all else in fp32. Nothing is read back. On CUDA the first line and the last two
/// are one pass each, over up to 512 matrices.
void muon_(const MuonTensors& tensors, const MuonSettings& settings, const at::Tensor& control);

/// muon_ in two halves, for those who look at weights just before and after they change: what they change by,
/// and the change of matrices first to end - 1.
struct MuonDirection {
  at::Tensor x, scale;  // (K, m, n), and what multiplies its rows or columns
};
MuonDirection muon_direction(const MuonTensors& tensors, const MuonSettings& settings,
                             const at::Tensor& control);
void muon_apply_(const MuonTensors& tensors, const MuonDirection& direction, const MuonSettings& settings,
                 const at::Tensor& control, size_t first, size_t end);

/// The same in ordinary ATen; in fp64 where the masters are.
void muon_plain_(const MuonTensors& tensors, const MuonSettings& settings, const at::Tensor& control);

/// Bytes that muon_ works in, besides its tensors, of `count` matrices (rows, columns): with kernels, or by
/// ATen alone.
double muon_workspace(int64_t count, int64_t rows, int64_t columns, at::ScalarType compute_dtype,
                      bool kernels);

/// Takes the memory that muon_'s kernels work in and gives it back to torch's allocator, which then has it at
/// hand.
void muon_reserve(const MuonTensors& tensors, const MuonSettings& settings);

}  // namespace tightloop::ops
