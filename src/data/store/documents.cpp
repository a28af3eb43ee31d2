#include "data/store/documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace tightloop {

namespace {

// Eight bits as eight bytes of 0 or 1, the lowest first.
constexpr std::array<uint64_t, 256> kBytesOfBits = [] {
  std::array<uint64_t, 256> table{};
  for (uint64_t bits = 0; bits < 256; ++bits)
    for (int i = 0; i < 8; ++i) table[bits] |= (bits >> i & 1) << (8 * i);
  return table;
}();

}  // namespace

size_t part_of(const std::vector<uint64_t>& firsts, uint64_t index) {
  return std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin() - 1;
}

uint64_t Documents::document_at(uint64_t position) const {
  uint64_t low = 0, high = size();  // begin(low) <= position < begin(high)
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (begin(middle) <= position ? low : high) = middle;
  }
  return low;
}

std::string Documents::origin(uint64_t document) const { return fmt::format("document {}", document + 1); }

// The widening loop is what loading from shards spends its time on, and -O2 does not vectorize it.
[[gnu::optimize("O3")]] static void widen(const uint16_t* from, uint64_t count, int32_t* to) {
  for (uint64_t i = 0; i < count; ++i) to[i] = from[i];
}

void TokenView::read(uint64_t position, uint64_t count, int32_t* ids) const {
  if (count == 0) return;
  if (narrow) {
    widen(narrow + position, count, ids);
  } else {
    std::memcpy(ids, wide + position, count * sizeof(int32_t));
  }
}

uint64_t TokenView::read_mask(uint64_t position, uint64_t count, uint8_t* mask) const {
  if (count == 0) return 0;
  if (!mask_bits) {
    std::memset(mask, 1, count);
    return count;
  }
  uint64_t ones = 0;
  for (uint64_t i = 0; i < count;) {
    const uint64_t at = position + i, shift = at % 64, here = std::min(count - i, 64 - shift);
    uint64_t word = mask_bits[at / 64] >> shift;
    if (here < 64) word &= (uint64_t{1} << here) - 1;
    ones += std::popcount(word);
    uint64_t j = 0;
    for (; j + 8 <= here; j += 8, word >>= 8) std::memcpy(mask + i + j, &kBytesOfBits[word & 0xff], 8);
    for (; j < here; ++j, word >>= 1) mask[i + j] = word & 1;
    i += here;
  }
  return ones;
}

void MaskBits::extend(uint64_t first, uint64_t count, std::span<const uint8_t> mask) {
  if (words_.empty() && mask.empty()) return;
  words_.resize((first + count + 63) / 64, ~uint64_t{0});
  for (uint64_t i = 0; i < mask.size(); ++i)
    if (!mask[i]) words_[(first + i) / 64] &= ~(uint64_t{1} << (first + i) % 64);
}

void TokenStore::extend(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  if (narrow_ids_) {
    narrow_.insert(narrow_.end(), ids.begin(), ids.end());
  } else {
    wide_.insert(wide_.end(), ids.begin(), ids.end());
  }
  mask_bits_.extend(tokens_, ids.size(), mask);
  tokens_ += ids.size();
}

void TokenStore::close(int32_t source) {
  begins_.push_back(tokens_);
  sources_.push_back(source);
  origins_.push_back(origin_);
  view_ = {narrow_ids_ ? narrow_.data() : nullptr, narrow_ids_ ? nullptr : wide_.data(),
           mask_bits_.words().empty() ? nullptr : mask_bits_.words().data()};
}

std::string TokenStore::origin(uint64_t document) const {
  const auto& [line, file] = origins_[document];
  if (line == 0 || file >= files_.size()) return Documents::origin(document);
  return fmt::format("'{}', line {}", files_[file], line);
}

}  // namespace tightloop
