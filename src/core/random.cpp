#include "core/random.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tightloop {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                            static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

uint64_t Random::next() {
  if (used_ == 4) {
    block_ = philox(seed_, counter_++, stream_);
    used_ = 0;
  }
  const uint64_t low = block_[used_], high = block_[used_ + 1];
  used_ += 2;
  return low | high << 32;
}

uint64_t Random::below(uint64_t bound) {
  const uint64_t limit = -bound % bound;  // 2^64 mod bound: draws under it would favour small results
  for (;;) {
    const uint64_t draw = next();
    if (draw >= limit) return draw % bound;
  }
}

Permutation::Permutation(uint64_t size, uint64_t seed) : size_(size), seed_(seed) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(size > 0 ? size - 1 : 0)));
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < 4; ++round) {
    const auto words = philox(seed_, right, round);
    const uint64_t mixed = (words[0] | uint64_t{words[1]} << 32) & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator[](uint64_t index) const {
  do index = encrypt(index);
  while (index >= size_);  // the domain is at most 4 x size, so few walks
  return index;
}

}  // namespace tightloop
