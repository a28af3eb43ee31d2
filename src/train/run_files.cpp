#include "train/run_files.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"

namespace tightloop {

namespace {

/// 0 where there is none.
uint64_t number_of(const fs::path& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

RunFiles::RunFiles(const RunFolder& run) : root_(run.root()), folder_(number_of(root_)) {
  const auto keep = [&](const fs::path& file) {
    if (is_file(file)) files_[file] = read_file(file);
  };
  keep(run.config());
  for (const auto& folder : {run.tokenizer(), run.target_tokenizer()}) {
    for (const fs::path& entry : folder_entries(folder)) keep(entry);
  }
}

void RunFiles::restore() {
  const uint64_t now = number_of(root_);
  if (now != 0 && now != folder_) {
    throw checkpoint_error(
        "'{}' is not the folder that this run was started in: it was removed or moved, and another one has "
        "taken its name. Nothing is saved there.",
        root_.string());
  }
  std::vector<std::string> missing;
  for (const auto& [path, bytes] : files_) {
    if (path_exists(path)) continue;
    make_folder(path.parent_path());
    write_file_whole(path, bytes);
    missing.push_back(path.lexically_relative(root_).string());
  }
  if (missing.empty()) return;
  folder_ = number_of(root_);
  log::warn("'{}' was removed while the run trained, all of it or in part. {} are written again.",
            root_.string(), fmt::join(missing, ", "));
}

}  // namespace tightloop
