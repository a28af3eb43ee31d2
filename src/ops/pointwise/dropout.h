#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tightloop::ops {

/// A site of a pass at which a fraction `rate` of some tensor's elements become 0, 0 <= rate < 1, and the
/// rest are divided by 1 - rate. Which ones is a function of (random, site, index in row-major order) alone:
/// Philox keyed by `random`, an int64 scalar on the tensor's device, with `site` as the upper half of its
/// counter and index / 4 as the lower. So the CPU and a GPU drop the same elements in every dtype, no mask is
/// kept for the backward pass, a recomputed forward pass drops what the first one did, and a captured graph
/// drops others as soon as `random` holds another number.
struct Dropout {
  double rate = 0;
  at::Tensor random{};
  int64_t site = 0;
};

/// Where nothing is to be dropped it gives x itself.
at::Tensor dropout(const at::Tensor& x, const Dropout& drop);

/// The same in ordinary ATen, the mask as a tensor.
at::Tensor dropout_plain(const at::Tensor& x, const Dropout& drop);

/// Which of `count` elements stay: bool, on the device of `random`.
at::Tensor dropout_mask(int64_t count, const Dropout& drop);

/// Throws where it cannot be applied to a tensor on this device.
void check(const Dropout& drop, at::Device device);

/// Elements whose random word is below this are dropped.
inline uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
}

}  // namespace tightloop::ops
