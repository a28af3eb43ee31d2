#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "data/data_config.h"

namespace tightloop {

/// What files hold, found out from their content.
struct InferredSource {
  DataSource source = DataSource::kText;  // text, jsonl, parquet, pairs or shards
  std::optional<RecordFormat> format{};   // of records: text, chat, question or choice; none: unknown
  std::string holds{};                    // in words, such as "conversations (messages)"
  fs::path file{};                        // the first of them
};

/// Looks into the files that data.train and data.val name, and that are not empty; gzip and zstd are unpacked
/// for it. A data error where they are not of one kind. `pairs`: the model translates, so that sentences and
/// their translations are looked for; a data error where there are none, and where a file is a CSV table.
InferredSource infer_source(const DataConfig& config, bool pairs);

}  // namespace tightloop
