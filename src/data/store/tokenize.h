#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/read/bad_records.h"
#include "data/read/record.h"
#include "data/render/render.h"

namespace tightloop {

struct TokenizeOptions {
  int threads = 0;                   // 0: all cores
  int64_t batch = 128;               // records that a thread takes at once
  uint64_t skip = 0;                 // records to pass over, of an earlier run
  std::string doing = "Tokenizing";  // on the line of progress
};

/// Reads, renders on many threads, and calls emit(record, tokens) for every good record, in order, from this
/// thread. Bad ones go to `bad`. Reading goes on while records are rendered. emit() returns false to stop
/// early.
void tokenize(RecordReader& reader, const Renderer& renderer, const TokenizeOptions& options, BadRecords& bad,
              const std::function<bool(const Record&, const Rendered&)>& emit);

}  // namespace tightloop
