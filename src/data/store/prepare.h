#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/read/bad_records.h"
#include "data/store/source.h"

namespace tightloop {

struct PrepareProgress {
  uint64_t records = 0;  // of the files to learn from, then of those to evaluate on
  uint64_t train_documents = 0, train_tokens = 0, val_documents = 0, val_tokens = 0;
  uint64_t shards = 0;  // of each part, finished
};

struct PrepareOptions {
  fs::path folder;
  uint64_t shard_tokens = 100'000'000;
  /// Called after every round of records; returning false stops (what is not in a finished shard is done
  /// again).
  std::function<bool(const PrepareProgress&)> progress;
};

struct PrepareReport {
  PrepareProgress totals;
  BadRecords bad;
  bool finished = false;
  std::vector<std::string> mixture;  // of a mixture: the entries of data.mixture that name its shards
};

/// Tokenizes all that the configuration names into folder/train-00000.shard, ..., folder/val-00000.shard,
/// ..., and the tokenizer into folder/tokenizer. Goes on where an earlier call with the same files, settings
/// and tokenizer stopped, shard by shard; a folder with other contents is refused. The result does not depend
/// on threads or stops. Of a mixture, each source gets a folder of its own by its name, and
/// folder/mixture.yaml has the settings that mix them as before.
PrepareReport prepare(const SourceOptions& options, const PrepareOptions& prepare);

/// A data error for a folder of shards whose preparation was stopped or refused before its end. One that
/// prepare() did not make is good.
void require_finished(const fs::path& folder);

}  // namespace tightloop
