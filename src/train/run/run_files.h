#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/run/run_folder.h"

namespace tightloop {

/// What a checkpoint is of no use without: the run's settings and tokenizers, read when training starts. So
/// a run whose folder is removed meanwhile can still be saved.
class RunFiles {
 public:
  explicit RunFiles(const RunFolder& run);

  /// The run to save into, to be called before a save: writes what is missing again, and says so. Another
  /// folder that has taken the name is somebody else's: a checkpoint error, or for the `last` save a new run
  /// beside it, NAME-PID, with the same settings and tokenizers.
  RunFolder restore(bool last);

 private:
  RunFolder beside() const;
  /// Names of the files that were.
  std::vector<std::string> write_missing(const std::filesystem::path& root) const;

  std::filesystem::path root_;
  uint64_t folder_;                                     // which one it was, by the file system's number
  std::map<std::filesystem::path, std::string> files_;  // by name in the run
};

}  // namespace tightloop
