#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "train/run_folder.h"

namespace tightloop {

/// What a checkpoint is of no use without: the run's settings and tokenizers, read when training starts. So
/// a run whose folder is removed meanwhile can still be saved.
class RunFiles {
 public:
  explicit RunFiles(const RunFolder& run);

  /// To be called before a save: writes what is missing again, and says so. Where another folder has taken
  /// the name, a checkpoint error: it is somebody else's.
  void restore();

 private:
  std::filesystem::path root_;
  uint64_t folder_;                                     // which one it was, by the file system's number
  std::map<std::filesystem::path, std::string> files_;  // by path
};

}  // namespace tightloop
