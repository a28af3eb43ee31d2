#pragma once

#include <filesystem>

#include "train/run/run_folder.h"
#include "train/watch/run_log.h"
#include "train/watch/run_view.h"

namespace tightloop {

/// Keeps a RunView up to date from the files of a run, which a process may be writing. Reads only what came
/// since the last time, writes nothing and holds no lock.
class RunFollower {
 public:
  explicit RunFollower(const std::filesystem::path& root);

  /// All that is new. Gives whether the view is another one.
  bool read(RunView& view);
  /// Without metrics and state, which the process that trains knows better.
  bool read_events(RunView& view);

 private:
  /// What config.yaml says; it may change when a run is resumed.
  void read_settings(RunView& view);
  bool read_log(RunView& view);

  const RunFolder run_;
  JsonLinesReader metrics_, events_;
  LinesReader log_;
  std::map<std::string, std::string> settings_;
  double settings_changed_ = -1;
  bool first_ = true;
};

/// The view of a run from a part of its lines: all evaluations and the newest others, which is enough for a
/// table and quick for long runs.
RunView summary_of(const std::filesystem::path& root);

}  // namespace tightloop
