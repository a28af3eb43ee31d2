#pragma once

#include <array>
#include <cstdint>

namespace tightloop {

/// Philox 4x32-10: four random words as a pure function of a key and a counter. No state to save or to share.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0);

/// A stream of random numbers that is a function of (seed, stream): the same on every machine and compiler.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  uint64_t next();
  /// Uniform in [0, bound), without bias. bound > 0.
  uint64_t below(uint64_t bound);
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t seed_, stream_, counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

/// A shuffle of [0, size) computed element by element (a Feistel network with cycle walking), so that any
/// position can be asked for at once and nothing is kept in memory.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed);
  uint64_t size() const { return size_; }
  /// The element at `index`. index < size().
  uint64_t operator[](uint64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_, seed_;
  int half_bits_;
};

}  // namespace tightloop
