#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dist/processes.h"
#include "model/files/safetensors.h"
#include "train/optim/state_slice.h"

namespace tightloop {

/// A .safetensors file that several processes write at once, each what it has: the bytes are those of the
/// file that one process writes (save_checkpoint).
class SharedFile {
 public:
  /// Agrees on where each tensor is. All processes call it, with what each has; scalars, and what is `common`
  /// (all have it), are the main one's to write.
  SharedFile(std::string name, const std::vector<StateSlice>& slices, const NamedTensors& common,
             Processes& processes);

  const std::string& name() const { return name_; }
  uint64_t bytes() const { return layout_->bytes; }
  /// What this process writes, in this order, given the slices and common tensors as they are now.
  NamedTensors own(const std::vector<StateSlice>& slices, const NamedTensors& common) const;

  /// The empty file: before anybody writes, by the main process.
  void create(const std::filesystem::path& folder) const;
  /// Writes what own() gave. Gives a list of "begin", "bytes" and "xxh3".
  nlohmann::json write(const std::filesystem::path& folder, const NamedTensors& tensors,
                       const std::function<void(uint64_t)>& wrote) const;

 private:
  std::string name_;
  bool main_;
  std::shared_ptr<const SafetensorsLayout> layout_;
  std::vector<uint64_t> begins_;  // of what this process writes
};

/// Both files of a checkpoint, and how processes write them together. Each calls write() from a thread of its
/// own, for the same saves in the same order; nothing but the disk and small messages is waited for.
class SharedCheckpoint {
 public:
  /// All processes make it together.
  SharedCheckpoint(SharedFile weights, SharedFile optimizer, Processes& processes);

  const SharedFile& weights() const { return weights_; }
  const SharedFile& optimizer() const { return optimizer_; }
  uint64_t bytes() const { return weights_.bytes() + optimizer_.bytes(); }

  /// What this process has, as SharedFile::own gave it.
  struct Part {
    const NamedTensors &weights, &optimizer;
    std::function<void(uint64_t)> wrote;
  };
  /// The main process's: into `folder`. Gives what state.json says of the files, once all have written.
  nlohmann::json write(const std::filesystem::path& folder, const Part& part);
  /// Of the others: into the folder of that name in `checkpoints`.
  void help(const std::filesystem::path& checkpoints, const Part& part);
  /// The main process's, after each save, good or not: the others may be waiting for its begin.
  void end() noexcept;

  /// Once a save has failed, in all processes: a disk that does not take what several write may never do.
  void give_up() { given_up_ = true; }
  bool given_up() const { return given_up_; }

 private:
  nlohmann::json write_own(const std::filesystem::path& folder, const Part& part) const;
  std::string post_name(const std::string& what) const;

  SharedFile weights_, optimizer_;
  Processes& processes_;
  const int64_t number_;  // among all of them that this process has made: what is posted outlives one
  int64_t saves_ = 0;     // that are over
  bool given_up_ = false;
  enum { kIdle, kBegun, kDone } state_ = kIdle;  // of the save at work, in the main process
};

/// What state.json says of a file: the pieces of all processes in order. An error where they are not all of
/// it.
nlohmann::json joined_pieces(const std::vector<nlohmann::json>& lists, uint64_t bytes);

}  // namespace tightloop
