#include "train/run/run_files.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (is_file(file)) files_[file.lexically_relative(root_)] = read_file(file);
  };
  keep(run.config());
  for (const auto& folder : {run.tokenizer(), run.target_tokenizer()}) {
    for (const fs::path& entry : folder_entries(folder)) keep(entry);
  }
}

RunFolder RunFiles::restore(bool last) {
  const uint64_t now = number_of(root_);
  if (now != 0 && now != folder_) {
    if (last) return beside();
    throw checkpoint_error(
        "'{}' is not the folder that this run was started in: it was removed or moved, and another one has "
        "taken its name. Nothing is saved there.",
        root_.string());
  }
  const auto missing = write_missing(root_);
  if (!missing.empty()) {
    folder_ = number_of(root_);
    log::warn("'{}' was removed while the run trained, all of it or in part. {} are written again.",
              root_.string(), fmt::join(missing, ", "));
  }
  return RunFolder(root_);
}

RunFolder RunFiles::beside() const {
  const auto run = RunFolder::create(fmt::format("{}-{}", root_.string(), ::getpid()), /*overwrite=*/false);
  write_missing(run.root());
  return run;
}

std::vector<std::string> RunFiles::write_missing(const fs::path& root) const {
  std::vector<std::string> missing;
  for (const auto& [name, bytes] : files_) {
    const fs::path path = root / name;
    if (path_exists(path)) continue;
    make_folder(path.parent_path());
    write_file_whole(path, bytes);
    missing.push_back(name.string());
  }
  return missing;
}

}  // namespace tightloop
