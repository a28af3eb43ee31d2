#pragma once

#include <cstdint>

#include "data/store/source.h"

namespace tightloop {

/// When prepared shards, a cache or an index are those of some data: the same settings, names, sizes and
/// times of the files, and tokenizers give the same key.
uint64_t prepare_key(const SourceOptions& options);

}  // namespace tightloop
