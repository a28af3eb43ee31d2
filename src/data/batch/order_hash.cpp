#include "data/batch/order_hash.h"

#include "core/hash.h"

namespace tightloop {

namespace {

template <class T>
uint64_t chain(uint64_t hash, const T* values, int64_t count) {
  return hash64(values, count * sizeof(T), hash);
}

}  // namespace

uint64_t order_hash(const Batch& batch, uint64_t part) {
  uint64_t sum = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t at = row * batch.length;
    uint64_t hash = part * batch.rows + row;
    hash = chain(hash, batch.inputs + at, batch.length);
    hash = chain(hash, batch.targets + at, batch.length);
    hash = chain(hash, batch.loss_mask + at, batch.length);
    sum += chain(hash, batch.sources + row, 1);
  }
  return sum;
}

uint64_t order_hash(const PairBatch& batch, uint64_t part) {
  uint64_t sum = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    uint64_t hash = (part << 32) + row;
    hash = chain(hash, batch.source + row * batch.source_length, batch.source_length);
    hash = chain(hash, batch.inputs + row * batch.target_length, batch.target_length);
    hash = chain(hash, batch.targets + row * batch.target_length, batch.target_length);
    hash = chain(hash, batch.source_lengths + row, 1);
    sum += chain(hash, batch.target_lengths + row, 1);
  }
  return sum;
}

}  // namespace tightloop
