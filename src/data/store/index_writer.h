#pragma once

#include "core/files.h"
#include "data/store/source.h"

namespace tightloop {

/// Reads and tokenizes all that `options` names, once, and writes what data/store/record_index.h opens into a
/// folder that exists.
void write_index(const SourceOptions& options, const fs::path& folder);

}  // namespace tightloop
