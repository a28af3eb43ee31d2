#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/model_config.h"
#include "ops/attention/split_heads.h"

namespace tightloop {

/// How fast each pair of elements turns: theta^(-2i/S), with low frequencies stretched where the
/// configuration says so (Llama 3).
std::vector<double> rotary_frequencies(const ModelConfig& config);

/// Refuses a head size that rotary positions cannot have.
void check_rotary(const ModelConfig& config);

/// Tables with a row for each position, which grow with the longest sequence seen.
class PositionTables {
 public:
  /// Tables of so many rows, fp32 on the CPU.
  using Make = std::function<std::vector<at::Tensor>(int64_t rows)>;
  explicit PositionTables(Make make) : make_(std::move(make)) {}

  /// The tables on a device and in a dtype, covering at least the positions [0, length).
  const std::vector<at::Tensor>& cover(int64_t length, at::Device device, at::ScalarType dtype);

 private:
  struct Made {
    std::vector<at::Tensor> tables{};
    // Captured graphs still read those that they saw. As rows double, they are smaller than the tables, taken
    // together.
    std::vector<at::Tensor> outgrown{};
  };
  Make make_;
  std::map<std::pair<std::string, at::ScalarType>, Made> made_;  // by device and dtype
};

/// Rotary positions.
class Rotary {
 public:
  explicit Rotary(std::vector<double> frequencies);

  /// Makes the tables cover the positions [0, length) on a device.
  void cover(int64_t length, at::Device device);
  /// Queries and keys turned by the angles of their positions, the first of which is `offset` (or each its
  /// own in `positions`), and values: ops::split_heads of (B, T, H + 2 K, S).
  ops::SplitHeads split(const at::Tensor& qkv, int64_t heads, int64_t offset,
                        const std::optional<ops::HeadNorm>& norm = {},
                        const at::Tensor& positions = {}) const;

 private:
  PositionTables tables_;
  at::Tensor cos_, sin_;  // (positions, S / 2)
};

}  // namespace tightloop
