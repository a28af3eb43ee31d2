#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "model/model_config.h"
#include "ops/split_heads.h"

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
  /// Queries and keys turned by the angles of their positions, the first of which is `offset`, and values:
  /// ops::split_heads of (B, T, H + 2 K, S).
  ops::SplitHeads split(const at::Tensor& qkv, int64_t heads, int64_t offset,
                        const std::optional<ops::HeadNorm>& norm = {}) const;

 private:
  std::vector<double> frequencies_;
  at::Tensor cos_, sin_;              // (positions, S / 2)
  std::vector<at::Tensor> outgrown_;  // captured graphs still read those that they saw
};

}  // namespace tightloop
