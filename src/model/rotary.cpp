#include "model/rotary.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/rope.h"

namespace tightloop {

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  auto frequencies = ops::rope_frequencies(config.head_size, config.rope_theta);
  if (config.rope_scaling == "none") return frequencies;
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

void Rotary::cover(int64_t length, at::Device device) {
  if (cos_.defined() && cos_.size(0) >= length && cos_.device() == device) return;
  c10::InferenceMode ordinary(false);  // training may use the tables that generation made
  const int64_t rows = std::max<int64_t>(128, (length + 127) / 128 * 128);
  if (cos_.defined()) outgrown_.insert(outgrown_.end(), {cos_, sin_});
  auto [cos, sin] = ops::rope_tables(rows, frequencies_);
  cos_ = cos.to(device), sin_ = sin.to(device);
}

ops::SplitHeads Rotary::split(const at::Tensor& qkv, int64_t heads, int64_t offset,
                              const std::optional<ops::HeadNorm>& norm) const {
  return ops::split_heads(qkv, heads, cos_, sin_, offset, norm);
}

}  // namespace tightloop
