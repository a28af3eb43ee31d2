#include "model/parts/rotary.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "ops/attention/rope.h"

namespace tightloop {

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  auto frequencies = ops::rope_frequencies(config.head_size, config.rope_theta);
  if (config.rope_scaling == RopeScaling::kNone) return frequencies;
  // Llama 3: waves that are short against the trained context stay, long ones are stretched by the factor,
  // and between the two the share that stays falls evenly with the waves that fit into the context.
  const double context = static_cast<double>(config.rope_original_context);
  for (double& frequency : frequencies) {
    const double waves = context * frequency / (2 * std::numbers::pi);
    const double share = (waves - config.rope_low_freq) / (config.rope_high_freq - config.rope_low_freq);
    const double kept = std::clamp(share, 0.0, 1.0);
    frequency *= kept + (1 - kept) / config.rope_factor;
  }
  return frequencies;
}

void check_rotary(const ModelConfig& config) {
  if (config.head_size % 2)
    throw usage_error(
        "model.head_size is {} (model.width {} over model.heads {}, where it is not given); rotary positions "
        "need an even one.",
        config.head_size, config.width, config.heads);
}

const std::vector<at::Tensor>& PositionTables::cover(int64_t length, at::Device device,
                                                     at::ScalarType dtype) {
  auto& [tables, outgrown] = made_[{device.str(), dtype}];
  const int64_t before = tables.empty() ? 0 : tables.front().size(0);
  if (before >= length && before > 0) return tables;
  c10::InferenceMode ordinary(false);  // training may use the tables that generation made
  if (!device.is_cpu()) outgrown.insert(outgrown.end(), tables.begin(), tables.end());
  const int64_t rows = std::max((length + 127) / 128 * 128, std::max<int64_t>(128, 2 * before));
  tables = make_(rows);
  for (auto& table : tables) table = table.to(device, dtype);
  return tables;
}

Rotary::Rotary(std::vector<double> frequencies)
    : tables_([frequencies = std::move(frequencies)](int64_t rows) {
        auto [cos, sin] = ops::rope_tables(rows, frequencies);
        return std::vector{cos, sin};
      }) {}

void Rotary::cover(int64_t length, at::Device device) {
  if (cos_.defined() && cos_.size(0) >= length && cos_.device() == device) return;
  const auto& tables = tables_.cover(length, device, at::kFloat);
  cos_ = tables[0], sin_ = tables[1];
}

ops::SplitHeads Rotary::split(const at::Tensor& qkv, int64_t heads, int64_t offset,
                              const std::optional<ops::HeadNorm>& norm, const at::Tensor& positions) const {
  return ops::split_heads(qkv, heads, cos_, sin_, offset, norm, positions);
}

}  // namespace tightloop
