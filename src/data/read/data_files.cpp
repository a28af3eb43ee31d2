#include "data/read/data_files.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/input_file.h"
#include "data/mixture.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

std::vector<fs::path> shard_paths(const std::vector<std::string>& patterns, const std::string& part) {
  std::vector<std::string> expanded;
  for (const std::string& pattern : patterns) {
    const std::string inside = (fs::path(pattern) / (part + "-*.shard")).string();
    expanded.push_back(is_folder(pattern) ? inside : pattern);
  }
  return expand_all(expanded);
}

// Of one source; `of` says which, after the name of the part.
void add_files(const DataConfig& config, const std::string& of, std::vector<DataFile>& files) {
  if (!config.reads_files()) return;
  const auto add = [&](const std::vector<fs::path>& paths, const char* part) {
    for (const fs::path& path : paths) files.push_back({path, part + of});
  };
  if (config.source == DataSource::kShards) {
    add(train_shards(config), "train");
    add(held_out_shards(config), "val");
    return;
  }
  add(expand_all(config.train), "train");
  add(expand_all(config.train_target), "train_target");
  add(expand_all(config.val), "val");
  add(expand_all(config.val_target), "val_target");
}

}  // namespace

std::vector<fs::path> expand_all(const std::vector<std::string>& patterns) {
  std::vector<fs::path> paths;
  for (const std::string& pattern : patterns)
    for (fs::path& path : expand_glob(pattern)) {
      if (is_folder(path))
        throw data_error("'{}' is a folder: name the files in it, as in '{}/*'.", path.string(),
                         path.string());
      // An index, a run's settings and its checkpoints name it, and they are UTF-8.
      if (!is_utf8(path.string()))
        throw data_error("the name of the file '{}' is not UTF-8. Rename it.", path.string());
      require_regular_file(path, "data is read more than once: write it to a file first.");
      paths.push_back(std::move(path));
    }
  return paths;
}

std::vector<fs::path> train_shards(const DataConfig& config) { return shard_paths(config.train, "train"); }

std::vector<fs::path> held_out_shards(const DataConfig& config) {
  if (!config.val.empty()) return shard_paths(config.val, "val");
  std::vector<fs::path> val;
  for (const std::string& folder : config.train)
    if (is_folder(folder) && path_exists(fs::path(folder) / "val-00000.shard"))
      for (const fs::path& path : shard_paths({folder}, "val")) val.push_back(path);
  return val;
}

std::vector<DataFile> data_files(const DataConfig& config) {
  std::vector<DataFile> files;
  if (config.mixture.empty()) add_files(config, "", files);
  int number = 0;  // two entries may have one name
  for (const MixtureEntry& entry : parse_mixture(config))
    add_files(entry.data, fmt::format(" of entry {} ({})", ++number, entry.name), files);
  return files;
}

}  // namespace tightloop
