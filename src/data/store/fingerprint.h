#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/data_config.h"

namespace tightloop {

/// What the files of a configuration are known by: for each, in order, its path, what it is read for (see
/// data/read/data_files.h), size, time and a hash; of large ones the hash is of blocks all over the file, the
/// first and the last among them. `per_file` is how many bytes of a file are hashed at most (0: as many as
/// all files together make cheap). Files that compare_files() has just hashed are not read again.
///
///     {"per_file": N, "files": [{"path": ..., "part": ..., "bytes": ..., "time": ..., "xxh3": ...}, ...]}
nlohmann::json fingerprint_files(const DataConfig& config, uint64_t per_file = 0);

struct ChangedFiles {
  std::vector<std::string>
      changed;  // lines for people, "was, is", where the bytes, or what they are for, are others
  std::vector<std::string>
      moved;  // where only the name is, or only the time of a file too large to hash whole
};
/// Compares what fingerprint_files() gave with what it gives now.
ChangedFiles compare_files(const nlohmann::json& was, const DataConfig& config);

/// The same text for JSON: bytes that are not UTF-8 are replaced.
std::string json_text(const std::string& text);

}  // namespace tightloop
