#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop {

/// The random numbers of Python's random.Random(seed), for results that are compared with those of programs
/// in Python: the same seed gives the same shuffle and the same sample.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  /// Mersenne Twister's next 32 bits.
  uint32_t next();
  /// Uniform in [0, bound), 0 < bound < 2^32: Random.randrange(bound).
  uint32_t below(uint32_t bound);
  /// `count` different numbers below `size`, in the order of Random.sample(range(size), count). count <=
  /// size.
  std::vector<size_t> sample(size_t size, size_t count);
  /// Random.shuffle(items).
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[below(static_cast<uint32_t>(i + 1))]);
  }

 private:
  static constexpr size_t kWords = 624;
  std::array<uint32_t, kWords> state_;
  size_t used_ = kWords;
};

}  // namespace tightloop
