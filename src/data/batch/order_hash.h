#pragma once

#include <cstdint>

#include "data/batch/batch.h"
#include "data/batch/pairs.h"

namespace tightloop {

/// What stands where: a sum over rows of a hash of the row and of its place in the global order. Sums over
/// several batches, or over readers that share the work, add up to that of the whole; a row that is missing,
/// doubled, changed or in another place changes it. `part` is batch.index * world + rank.
uint64_t order_hash(const Batch& batch, uint64_t part);
uint64_t order_hash(const PairBatch& batch, uint64_t part);

}  // namespace tightloop
