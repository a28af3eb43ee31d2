#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "dist/processes.h"
#include "train/run/run_folder.h"

namespace tightloop {

/// A run's folder among several processes. Only the main one needs to see it. Those that do not, on machines
/// that share no disk with it, get copies of what they read, in a temporary folder of their own that goes
/// when this object does. All processes make the same calls.
class RunShare {
 public:
  /// `run` is the folder as the main process has it; that of the others does not count.
  RunShare(const RunFolder& run, Processes& processes);
  ~RunShare();
  RunShare(const RunShare&) = delete;
  RunShare& operator=(const RunShare&) = delete;

  /// What this process reads: the run itself, or its copies.
  const RunFolder& run() const { return run_; }
  /// Whether every process sees the run itself; and whether each may write its part there.
  bool everywhere() const { return everywhere_; }
  bool all_may_write() const { return all_may_write_; }

  // What the main process has of these is in everybody's run() afterwards; until then nobody goes on.
  void send_settings();  // config.yaml and tokenizers
  void send_prepared();  // tokenizers and the index of raw files
  /// Where everybody sees the run, those that do not see the checkpoint yet wait for it: network file systems
  /// (NFS) show other machines a new folder up to a minute later.
  void send_checkpoint(int64_t step);

  /// Once they are loaded.
  void drop_checkpoints();

 private:
  void send(const std::vector<std::filesystem::path>& names);
  void wait_until_seen(int64_t step) const;

  Processes& processes_;
  RunFolder run_;
  bool own_ = false;  // run_ is a copy
  bool everywhere_ = true, all_may_write_ = true;
};

}  // namespace tightloop
