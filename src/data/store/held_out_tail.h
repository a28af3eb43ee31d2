#pragma once

#include <cstdint>

#include "core/files.h"
#include "data/data_config.h"
#include "data/store/prepare.h"

namespace tightloop {

/// Whether data.holdout takes the tail of the token stream, and not documents by their hash. A usage error of
/// pairs, which that would cut.
bool holds_out_tail(const DataConfig& config);

/// Where the tail of a stream of so many tokens begins. Of little text it has two rows of data.seq_len, where
/// that is no more than 30 % of the tokens.
uint64_t tail_begin(const DataConfig& config, uint64_t tokens);

/// Moves the tokens from `begin` on out of a folder's train shards (totals.shards of them) into the val
/// shards beside them, which are empty, and counts both anew. After a stop the same call goes on.
void cut_tail(const fs::path& folder, uint64_t begin, PrepareProgress& totals);

}  // namespace tightloop
