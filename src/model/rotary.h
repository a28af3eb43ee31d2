#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace tightloop {

/// How fast each pair of elements turns: theta^(-2i/S), with low frequencies stretched where the
/// configuration says so (Llama 3).
std::vector<double> rotary_frequencies(const ModelConfig& config);

/// Rotary positions: tables of angles that grow with the longest sequence seen.
class Rotary {
 public:
  explicit Rotary(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {}

  /// Makes the tables cover the positions [0, length) on a device.
  void cover(int64_t length, at::Device device);
  /// x (B, T, H, S) turned by the angles of its positions, the first of which is `offset`.
  at::Tensor turn(const at::Tensor& x_BTHS, int64_t offset) const;

 private:
  std::vector<double> frequencies_;
  at::Tensor cos_, sin_;  // (positions, S / 2)
};

}  // namespace tightloop
