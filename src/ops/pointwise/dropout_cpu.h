#pragma once

// Dropout inside of other operators' CPU kernels.

#include <ATen/core/Tensor.h>

#include <cstring>
#include <optional>
#include <vector>

#include "ops/cpu.h"
#include "ops/pointwise/dropout.h"

namespace tightloop::ops::cpu {

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57,
                   kPhiloxStep0 = 0x9E3779B9, kPhiloxStep1 = 0xBB67AE85;
constexpr int64_t kChunk = 4 * kLanes;  // elements that one call of random_words serves

/// Philox 4x32-10 for eight counters at once: the words of elements [4 counter, 4 counter + kChunk).
inline void random_words(uint64_t key, uint64_t counter, uint64_t site, uint32_t* words) {
  using WideBits = uint64_t __attribute__((vector_size(8 * kLanes)));
  const WideBits counters = WideBits{0, 1, 2, 3, 4, 5, 6, 7} + counter;
  const auto low = [](const WideBits& v) { return __builtin_convertvector(v, Bits); };
  const auto wide = [](Bits v) { return __builtin_convertvector(v, WideBits); };
  Bits c0 = low(counters), c1 = low(counters >> 32);
  Bits c2 = Bits{} + static_cast<uint32_t>(site), c3 = Bits{} + static_cast<uint32_t>(site >> 32);
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const WideBits p0 = wide(c0) * kPhiloxMultiplier0, p1 = wide(c2) * kPhiloxMultiplier1;
    c0 = low(p1 >> 32) ^ c1 ^ k0, c1 = low(p1);
    c2 = low(p0 >> 32) ^ c3 ^ k1, c3 = low(p0);
    k0 += kPhiloxStep0, k1 += kPhiloxStep1;
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = c0[lane], words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane], words[4 * lane + 3] = c3[lane];
  }
}

/// What a row's elements are multiplied by: 0 where they are dropped. One for each thread.
class RowFactors {
 public:
  RowFactors(double p, const std::optional<at::Tensor>& random, int64_t site, int64_t D)
      : key_(p > 0 ? static_cast<uint64_t>(*random->const_data_ptr<int64_t>()) : 0),
        site_(static_cast<uint64_t>(site)),
        threshold_(dropout_threshold(p)),
        scale_(static_cast<float>(1 / (1 - p))),
        D_(D),
        factors_(p > 0 ? (D + kChunk - 1) / kChunk * kChunk : 0) {}

  /// Those of this row, D % 4 == 0; nullptr without dropout.
  const float* row(int64_t row) {
    if (factors_.empty()) return nullptr;
    uint32_t words[kChunk];
    for (int64_t at = 0; at < D_; at += kChunk) {
      random_words(key_, static_cast<uint64_t>((row * D_ + at) / 4), site_, words);
      for (int64_t i = 0; i < kChunk; ++i) factors_[at + i] = words[i] >= threshold_ ? scale_ : 0.0f;
    }
    return factors_.data();
  }

 private:
  uint64_t key_, site_;
  uint32_t threshold_;
  float scale_;
  int64_t D_;
  std::vector<float> factors_;
};

}  // namespace tightloop::ops::cpu
