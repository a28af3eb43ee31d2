#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/data_config.h"

namespace tightloop {

/// The files that patterns name, in order. A data error for one that names nothing.
std::vector<std::filesystem::path> expand_all(const std::vector<std::string>& patterns);

/// A file, and what it is read for: the setting that names it (`train`, `train_target`, `val`, `val_target`),
/// with the entry where that is one of data.mixture.
struct DataFile {
  std::filesystem::path path;
  std::string part;
};

/// The files that a configuration reads, in order: to learn from, then to evaluate on. Generated sources have
/// none.
std::vector<DataFile> data_files(const DataConfig& config);

/// Of `source: shards`. A folder stands for the shards of one part in it; what `prepare` held out is beside
/// what it did not.
std::vector<std::filesystem::path> train_shards(const DataConfig& config);
std::vector<std::filesystem::path> held_out_shards(const DataConfig& config);

}  // namespace tightloop
