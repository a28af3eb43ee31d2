#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

class Fields;

/// Section "run": where results go.
struct RunConfig {
  std::string dir = "runs", name;

  void describe(Fields& fields);
};

/// runs/NAME/ and what is in it.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path root) : root_(std::move(root)) {}

  /// A new, empty run. One that exists already is refused unless `overwrite`, which removes it first; a
  /// folder that does not look like a run is never removed.
  static RunFolder create(const std::filesystem::path& root, bool overwrite);
  /// An existing run; a usage error when there is none.
  static RunFolder open(const std::filesystem::path& root);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path config() const { return root_ / "config.yaml"; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path log() const { return root_ / "log.txt"; }
  std::filesystem::path tokenizer() const { return root_ / "tokenizer"; }
  /// Of the translations, where it is not that of the sources; may be absent.
  std::filesystem::path target_tokenizer() const { return root_ / "tokenizer_target"; }
  std::filesystem::path index() const { return root_ / "index"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }

 private:
  std::filesystem::path root_;
};

}  // namespace tightloop
