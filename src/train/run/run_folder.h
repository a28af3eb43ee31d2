#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tightloop {

class Fields;

/// Section "run": where results go.
struct RunConfig {
  std::string dir = "runs", name;

  void describe(Fields& fields);
};

/// runs/NAME/ and what is in it. A run that has no checkpoint and no metrics yet holds nothing worth keeping.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path root);

  /// A new, empty run that no other process writes to as long as this object or a copy of it lives. One that
  /// exists already is refused unless it holds nothing worth keeping, or `overwrite`: then it is put aside,
  /// as .NAME.replaced, until saved(), and comes back where that is never said. A folder that does not look
  /// like a run is never touched.
  static RunFolder create(const std::filesystem::path& root, bool overwrite);
  /// An existing run to read from; a usage error when there is none.
  static RunFolder open(const std::filesystem::path& root);
  /// An existing run to go on with, which no other process writes to meanwhile.
  static RunFolder resume(const std::filesystem::path& root);
  /// Puts things right where a process that was to replace the run was killed: the run of before comes back,
  /// or goes where the new one has a checkpoint.
  static void recover(const std::filesystem::path& root);

  /// To be called when a checkpoint is on disk: the run that this one replaces goes.
  void saved() const;
  /// A new run that cannot begin leaves no folder behind.
  void discard() const;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.yaml"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path events() const { return root_ / "events.jsonl"; }
  std::filesystem::path samples() const { return root_ / "samples.jsonl"; }
  std::filesystem::path report() const { return root_ / "report.html"; }
  std::filesystem::path csv() const { return root_ / "metrics.csv"; }
  std::filesystem::path tensorboard() const { return root_ / "tensorboard"; }
  std::filesystem::path wandb() const { return root_ / "wandb"; }
  std::filesystem::path log() const { return root_ / "log.txt"; }
  std::filesystem::path tokenizer() const { return root_ / "tokenizer"; }
  /// Of the translations, where it is not that of the sources; may be absent.
  std::filesystem::path target_tokenizer() const { return root_ / "tokenizer_target"; }
  std::filesystem::path index() const { return root_ / "index"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }

 private:
  struct Claim;

  std::filesystem::path root_;
  std::shared_ptr<Claim> claim_;  // of a run that this process writes to
};

/// The runs in a folder, those that were put aside recovered.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder);

}  // namespace tightloop
