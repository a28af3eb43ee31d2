#include "data/store/random_documents.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/random.h"

namespace tightloop {

uint64_t RandomDocuments::begin(uint64_t document) const {
  const auto all = std::accumulate(lengths_.begin(), lengths_.end(), uint64_t{0});
  const auto part = lengths_.begin() + static_cast<ptrdiff_t>(document % lengths_.size());
  return document / lengths_.size() * all + std::accumulate(lengths_.begin(), part, uint64_t{0});
}

void RandomDocuments::read(uint64_t position, uint64_t count, int32_t* ids) const {
  std::array<uint32_t, 4> words{};
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = position + i;
    if (i == 0 || at % 4 == 0) words = philox(seed_, at / 4);
    ids[i] = static_cast<int32_t>(uint64_t{words[at % 4]} * vocab_size_ >> 32);
  }
}

uint64_t RandomDocuments::read_mask(uint64_t, uint64_t count, uint8_t* mask) const {
  std::fill_n(mask, count, uint8_t{1});
  return count;
}

}  // namespace tightloop
