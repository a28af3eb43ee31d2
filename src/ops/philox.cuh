#pragma once

#include <cstdint>

#include "ops/device.cuh"

namespace tightloop::ops::cuda {

/// Philox 4x32-10, as core/random.h has it.
__device__ inline uint4 philox(uint64_t key, uint64_t counter, uint64_t site) {
  uint4 c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(site),
          static_cast<uint32_t>(site >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    const uint32_t high0 = __umulhi(kMultiplier0, c.x), high1 = __umulhi(kMultiplier1, c.z);
    c = {high1 ^ c.y ^ k0, kMultiplier1 * c.z, high0 ^ c.w ^ k1, kMultiplier0 * c.x};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

/// Dropout as a kernel applies it in passing, by the element's index in its tensor.
class Dropper {
 public:
  __device__ explicit Dropper(const Drop& drop)
      : key_(drop.random ? static_cast<uint64_t>(*drop.random) : 0),
        site_(static_cast<uint64_t>(drop.site)),
        threshold_(drop.threshold),
        scale_(drop.scale) {}

  /// Which of the four elements from 4 * `counter` on stay.
  __device__ void four(uint64_t counter, bool (&keeps)[4]) const {
    const uint4 words = philox(key_, counter, site_);
    keeps[0] = words.x >= threshold_;
    keeps[1] = words.y >= threshold_;
    keeps[2] = words.z >= threshold_;
    keeps[3] = words.w >= threshold_;
  }
  __device__ float apply(bool keep, float value) const { return keep ? value * scale_ : 0.0f; }

  /// Of kCount elements from `index`, a multiple of four, on.
  template <int kCount>
  __device__ void apply(uint64_t index, float (&values)[kCount]) const {
    static_assert(kCount % 4 == 0);
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      bool keeps[4];
      four((index + k) / 4, keeps);
#pragma unroll
      for (int at = 0; at < 4; ++at) values[k + at] = apply(keeps[at], values[k + at]);
    }
  }

 private:
  uint64_t key_, site_;
  uint32_t threshold_;
  float scale_;
};

}  // namespace tightloop::ops::cuda
