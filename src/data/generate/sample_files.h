#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "data/data_config.h"

namespace tightloop {

/// What a data section does not say about the records of its files.
struct SampleStyle {
  bool conversations = false;  // where data.format is auto: chats, not texts
  bool minimind = false;       // chats as MiniMind has them
  bool pairs = false;          // where data.source is auto
};

struct SampleFile {
  fs::path path;
  bool written = false;  // false: it was there, and stays as it is
};

/// Writes small files of made-up records under `folder`, where and as `config` (or each entry of its mixture)
/// reads them: same names (a pattern becomes one that it matches), same format, same fields. Parquet, JSONL,
/// text and pairs, gzip where the name says so. A usage error where it names no file, or one with an absolute
/// path.
std::vector<SampleFile> write_sample_files(const DataConfig& config, const SampleStyle& style,
                                           const fs::path& folder);

/// A name that a pattern matches: "shard_0[0-5]??.parquet" gives "shard_0000.parquet".
std::string name_matching(const std::string& pattern);

}  // namespace tightloop
