#include "data/store/nanochat_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "core/random/python_random.h"

namespace tightloop {

namespace {

/// NumPy's SeedSequence: eight words from one.
std::array<uint32_t, 8> seed_words(uint32_t seed) {
  constexpr size_t kPool = 4;
  const auto fold = [](uint32_t value) { return value ^ value >> 16; };
  uint32_t constant = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875;
    return fold(value * constant);
  };
  std::array<uint32_t, kPool> pool{};
  for (size_t i = 0; i < kPool; ++i) pool[i] = hashed(i == 0 ? seed : 0);
  for (size_t from = 0; from < kPool; ++from)
    for (size_t to = 0; to < kPool; ++to)
      if (from != to) pool[to] = fold(0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from]));
  std::array<uint32_t, 8> words{};
  constant = 0x8b51f9dd;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t value = pool[i % kPool] ^ constant;
    constant *= 0x58f38ded;
    words[i] = fold(value * constant);
  }
  return words;
}

/// PCG64 as NumPy seeds it; 64 bits are two words, the lower one first.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const auto words = seed_words(seed);
    const auto wide = [&](size_t i) { return words[i] | uint64_t{words[i + 1]} << 32; };
    const auto wider = [&](size_t i) { return Wide{wide(i)} << 64 | wide(i + 2); };
    increment_ = wider(4) << 1 | 1;
    step();
    state_ += wider(0);
    step();
  }
  uint32_t next() {
    if (std::exchange(has_upper_, !has_upper_)) return upper_;
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
    upper_ = static_cast<uint32_t>(value >> 32);
    return static_cast<uint32_t>(value);
  }
  /// Uniform in [0, bound): the lowest bits, as many as the largest value has, until they are below it.
  uint32_t below(uint32_t bound) {
    const uint32_t mask = std::bit_ceil(uint64_t{bound}) - 1;
    uint32_t value = next() & mask;
    while (value >= bound) value = next() & mask;
    return value;
  }

 private:
  __extension__ using Wide = unsigned __int128;
  void step() { state_ = state_ * (Wide{2549297995355413924U} << 64 | 4865540595714422341U) + increment_; }

  Wide state_ = 0, increment_ = 0;
  uint32_t upper_ = 0;
  bool has_upper_ = false;
};

}  // namespace

std::vector<uint64_t> numpy_permutation(uint64_t size, uint32_t seed) {
  std::vector<uint64_t> order(size);
  std::iota(order.begin(), order.end(), uint64_t{0});
  Pcg64 random(seed);
  for (size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[random.below(static_cast<uint32_t>(i) + 1)]);
  return order;
}

std::vector<uint64_t> nanochat_order(const std::vector<uint64_t>& parts) {
  constexpr uint32_t kSeed = 42;
  std::vector<uint64_t> order;
  for (const uint64_t size : parts) {
    const uint64_t first = order.size();
    for (const uint64_t document : numpy_permutation(size, kSeed)) order.push_back(first + document);
  }
  PythonRandom(kSeed).shuffle(order);
  return order;
}

ReorderedDocuments::ReorderedDocuments(std::shared_ptr<const Documents> documents,
                                       std::vector<uint64_t> order)
    : documents_(std::move(documents)), order_(std::move(order)) {
  begins_.reserve(order_.size() + 1);
  for (const uint64_t document : order_) begins_.push_back(begins_.back() + documents_->length(document));
}

// take(where the tokens stand in the documents below, how many of them), document by document.
template <class Take>
void ReorderedDocuments::for_each(uint64_t position, uint64_t count, const Take& take) const {
  for (size_t i = part_of(begins_, position); count > 0; ++i) {
    const uint64_t here = std::min(count, begins_[i + 1] - position);
    take(documents_->begin(order_[i]) + (position - begins_[i]), here);
    position += here, count -= here;
  }
}

void ReorderedDocuments::read(uint64_t position, uint64_t count, int32_t* ids) const {
  for_each(position, count, [&](uint64_t from, uint64_t here) {
    documents_->read(from, here, ids);
    ids += here;
  });
}

uint64_t ReorderedDocuments::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  uint64_t ones = 0;
  for_each(position, count, [&](uint64_t from, uint64_t here) {
    ones += documents_->read_mask(from, here, mask);
    mask += here;
  });
  return ones;
}

}  // namespace tightloop
