#include "core/random/python_random.h"

#include <bit>
#include <numeric>
#include <set>

namespace tightloop {

// Matsumoto and Nishimura's initialization from a key, whose words are those of the seed.
PythonRandom::PythonRandom(uint64_t seed) {
  state_[0] = 19650218;
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253 * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const uint32_t words = key[1] ? 2 : 1;
  size_t at = 1;
  const auto mix = [&](uint32_t factor, uint32_t add) {
    state_[at] = (state_[at] ^ ((state_[at - 1] ^ (state_[at - 1] >> 30)) * factor)) + add;
    if (++at < kWords) return;
    state_[0] = state_[kWords - 1];
    at = 1;
  };
  for (uint32_t i = 0; i < kWords; ++i) mix(1664525, key[i % words] + i % words);
  for (uint32_t i = 1; i < kWords; ++i) mix(1566083941, -static_cast<uint32_t>(at));
  state_[0] = 0x80000000;
}

uint32_t PythonRandom::next() {
  constexpr size_t kMiddle = 397;
  if (used_ == kWords) {
    for (size_t i = 0; i < kWords; ++i) {
      const uint32_t joined = (state_[i] & 0x80000000) | (state_[(i + 1) % kWords] & 0x7fffffff);
      state_[i] = state_[(i + kMiddle) % kWords] ^ (joined >> 1) ^ (joined & 1 ? 0x9908b0df : 0);
    }
    used_ = 0;
  }
  uint32_t word = state_[used_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680;
  word ^= (word << 15) & 0xefc60000;
  return word ^ (word >> 18);
}

uint32_t PythonRandom::below(uint32_t bound) {
  const int bits = std::bit_width(bound);
  uint32_t value = bound;
  while (value >= bound) value = next() >> (32 - bits);
  return value;
}

std::vector<size_t> PythonRandom::sample(size_t size, size_t count) {
  std::vector<size_t> chosen;
  size_t set_size = 21;  // from here on a set of those chosen takes less memory than a list of all
  if (count > 5) {
    size_t power = 1;
    while (power < 3 * count) power *= 4;
    set_size += power;
  }
  if (size <= set_size) {
    std::vector<size_t> pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t left = size; chosen.size() < count; --left) {
      const uint32_t at = below(static_cast<uint32_t>(left));
      chosen.push_back(pool[at]);
      pool[at] = pool[left - 1];
    }
    return chosen;
  }
  std::set<size_t> taken;
  while (chosen.size() < count)
    if (const size_t next = below(static_cast<uint32_t>(size)); taken.insert(next).second)
      chosen.push_back(next);
  return chosen;
}

}  // namespace tightloop
