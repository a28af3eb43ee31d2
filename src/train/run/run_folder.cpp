#include "train/run/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"
#include "core/folder_lock.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/run/checkpoint.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

constexpr std::string_view kReplacedRun = ".replaced";

/// Where a run waits until the one that replaces it has a checkpoint.
fs::path replaced_path(const fs::path& root) {
  return root.parent_path() / fmt::format(".{}{}", root.filename().string(), kReplacedRun);
}

/// An empty path is the current folder.
bool may_write(const fs::path& folder) { return ::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0; }

bool has_checkpoint(const RunFolder& run) { return !checkpoint_steps(run.checkpoints()).empty(); }

bool has_metrics(const RunFolder& run) { return path_exists(run.metrics()) && file_bytes(run.metrics()) > 0; }

/// What is in a folder besides the lock on it.
std::vector<fs::path> content(const fs::path& root) {
  auto entries = folder_entries(root);
  std::erase_if(entries, [](const fs::path& entry) { return entry.filename() == FolderLock::kFile; });
  return entries;
}

/// Whether it has a name that the program itself writes into a run. A folder of checkpoints with anything
/// else in it is somebody else's.
bool is_own(const RunFolder& run, const fs::path& entry) {
  const auto own = {run.config(),           run.metrics(),     run.events(), run.samples(), run.csv(),
                    run.tensorboard(),      run.wandb(),       run.report(), run.log(),     run.tokenizer(),
                    run.target_tokenizer(), run.checkpoints(), run.index()};
  const std::string name = entry.filename().string();
  return std::ranges::count(own, run.root() / name.substr(0, name.find(".partial-"))) > 0 &&
         (entry != run.checkpoints() ||
          std::ranges::all_of(folder_entries(entry), [](const fs::path& checkpoint) {
            return checkpoint_step(checkpoint.stem()) || checkpoint.filename() == "best.json";  // of old runs
          }));
}

bool has_only_own(const RunFolder& run) {
  return std::ranges::all_of(content(run.root()), [&](const fs::path& entry) { return is_own(run, entry); });
}

/// A run has a folder of checkpoints from its first moment on. What else a folder holds must be a run's, or
/// its config.yaml is that of a run.
bool is_run(const RunFolder& run) {
  return is_folder(run.checkpoints()) &&
         (has_only_own(run) ||
          (is_file(run.config()) && (has_checkpoint(run) || has_settings_of_a_run(run))));
}

std::string first_bytes(const fs::path& path, size_t count) {
  std::string bytes(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(file.gcount());
  return bytes;
}

/// A trace that no user leaves: the lock of a process that was killed, a log (one that was killed may not
/// have come to write it), or settings with a checksum. Nor is anything lost where all is empty.
bool was_left_by_a_process(const RunFolder& run) {
  constexpr std::string_view kTime = "0000-00-00 00:00:00.000 ";  // a log's lines begin like this
  std::string time = first_bytes(run.log(), kTime.size());
  std::ranges::replace_if(
      time, [](unsigned char c) { return std::isdigit(c); }, '0');
  return first_bytes(run.root() / FolderLock::kFile, 8) == "process " || time == kTime ||
         (is_file(run.log()) && file_bytes(run.log()) == 0) || has_settings_of_a_run(run) ||
         std::ranges::all_of(content(run.root()), [](const fs::path& entry) {
           return is_folder(entry) && folder_entries(entry).empty();
         });
}

/// Removes what a run holds, and its folder where nothing else is in it.
void remove_run(const RunFolder& run) {
  for (const fs::path& entry : content(run.root()))
    if (is_own(run, entry)) remove_path(entry);
  if (!content(run.root()).empty()) return;
  std::error_code ignored;  // somebody may have put something there just now
  fs::remove(run.root() / FolderLock::kFile, ignored);
  fs::remove(run.root(), ignored);
}

/// Why a new run cannot begin in this folder without --overwrite.
Error taken(const RunFolder& run) {
  const std::string root = run.root().string();
  if (!is_run(run))
    return usage_error("'{}' exists already and is not a run; it is left alone. Choose another --run.name.",
                       root);
  if (!has_checkpoint(run))
    return usage_error(
        "the run '{}' exists already, without a checkpoint to continue from. Choose another --run.name, or "
        "replace it with --overwrite.",
        root);
  return usage_error(
      "the run '{0}' exists already. Continue it with 'tightloop train --resume {1}', choose another "
      "--run.name, or replace it with --overwrite.",
      root, shell_word(root));
}

}  // namespace

void RunConfig::describe(Fields& fields) {
  fields.add("dir", dir, "Folder that holds all runs");
  fields.add("name", name, "Name of this run; empty: the configuration file's name");
}

/// What a process holds of a run that it writes to.
struct RunFolder::Claim {
  const fs::path root;
  std::unique_ptr<FolderLock> lock;
  std::unique_ptr<FolderLock> replaced;  // the lock of the run that was put aside, until it goes

  /// `otherwise` is what can be done instead of waiting.
  explicit Claim(const fs::path& folder, const char* otherwise = "")
      : root(folder), lock(take(root, otherwise)) {}
  static std::unique_ptr<FolderLock> take(const fs::path& root, const char* otherwise = "") {
    const std::string elsewhere = FolderLock::left_elsewhere(root);
    auto lock = std::make_unique<FolderLock>(root);
    if (!lock->held())
      throw usage_error("the run '{}' is in use by {}. Wait for it{}.", root.string(), lock->owner(),
                        otherwise);
    if (!elsewhere.empty())
      log::warn(
          "The run '{}' was last written to by {}. Whether that process lives cannot be seen from this "
          "machine: if it does, stop one of the two, for both write to the same files.",
          root.string(), printable(elsewhere));
    return lock;
  }
  void put_aside() {
    move_path(root, replaced_path(root));
    replaced = std::move(lock);
    lock = take(root);
  }
  ~Claim() {
    if (!replaced) return;
    try {
      if (lock && lock->in_place()) remove_run(RunFolder(root));
      move_path(replaced_path(root), root);
      log::warn("'{}' is the earlier run again: the new one ended without a checkpoint.", root.string());
    } catch (const Error& error) {
      log::warn("The earlier run is in '{}': {}", replaced_path(root).string(), error.what());
    }
  }
};

// "runs/a/" ends in an empty name.
RunFolder::RunFolder(fs::path root) : root_(root.has_filename() ? std::move(root) : root.parent_path()) {}

void RunFolder::recover(const fs::path& folder) {
  const RunFolder run(folder);
  const fs::path root = run.root(), replaced = replaced_path(root);
  if (!path_exists(replaced) || !may_write(replaced) || !may_write(root.parent_path())) return;
  try {
    if (!is_run(RunFolder(replaced))) return;
    const FolderLock lock(replaced);
    if (!lock.exclusive()) return;  // a run that replaces it is under way, or may be
    if (content(replaced).empty()) return remove_run(RunFolder(replaced));  // it came back just now
    if (is_run(run) && has_checkpoint(run)) return remove_path(replaced);
    const FolderLock root_lock(root);
    if (!root_lock.exclusive()) return;
    if (!content(root).empty() && (!is_run(run) || !has_only_own(run)))
      return log::warn("'{}' is not the run that it was: that one is in '{}'.", root.string(),
                       replaced.string());
    remove_run(run);
    move_path(replaced, root);
    remove_path(root / FolderLock::kFile);
  } catch (const Error& error) {
    return log::warn("The earlier run is in '{}': {}", replaced.string(), error.what());
  }
  log::warn("'{}' is the earlier run again: the one that was to replace it never saved a checkpoint.",
            root.string());
}

RunFolder RunFolder::create(const fs::path& root, bool overwrite) {
  RunFolder run(root);
  make_folder(run.root_);
  recover(run.root_);
  const bool left = was_left_by_a_process(run);
  run.claim_ = std::make_shared<Claim>(run.root_, ", or choose another --run.name");
  if (path_exists(replaced_path(run.root_)))
    throw usage_error("the run '{}' is being replaced by another process: '{}' is in the way.",
                      run.root_.string(), replaced_path(run.root_).string());
  const auto entries = content(run.root_);
  const bool nothing_kept =
      left && is_run(run) && has_only_own(run) && !has_checkpoint(run) && !has_metrics(run);
  if (nothing_kept) {
    log::info("The run '{}' was stopped before its first checkpoint; it starts again.", run.root_.string());
    for (const fs::path& entry : entries) remove_path(entry);
  } else if (!entries.empty()) {
    if (!overwrite || !is_run(run)) throw taken(run);
    run.claim_->put_aside();
  }
  for (const auto& folder : {run.checkpoints(), run.tokenizer()}) make_folder(folder);
  sync_folder(run.root_);
  sync_folder(run.root_.parent_path());
  return run;
}

RunFolder RunFolder::open(const fs::path& root) {
  RunFolder run(root);
  recover(run.root_);
  const fs::path replaced = replaced_path(run.root_);
  if (!has_checkpoint(run) && path_exists(replaced))
    throw usage_error(
        "the run '{}' is being replaced, or was to be. The earlier run is in '{}' until the new one has a "
        "checkpoint.",
        run.root_.string(), replaced.string());
  if (!path_exists(run.config()) && has_checkpoint(run))
    throw usage_error(
        "the run '{}' has checkpoints, but its config.yaml is missing. 'tightloop train --resume {}' writes "
        "it "
        "again, from the settings in the newest checkpoint's state.json.",
        run.root_.string(), shell_word(run.root_.string()));
  if (!path_exists(run.config()))
    throw usage_error("'{}' is not a run: it has no config.yaml.{}", run.root_.string(),
                      is_run(run) ? " A run was stopped there before it began: start it again." : "");
  return run;
}

RunFolder RunFolder::resume(const fs::path& root) {
  RunFolder run(root);
  recover(run.root_);
  if (!path_exists(run.config()) && !has_checkpoint(run) && !is_run(run))
    throw usage_error("'{}' is not a run: it has no config.yaml.", run.root_.string());
  run.claim_ = std::make_shared<Claim>(run.root_);
  if (!has_checkpoint(run))
    throw checkpoint_error(
        "the run '{}' has no checkpoint yet, so there is nothing to continue from. Start it again with "
        "'tightloop train RECIPE'{}.",
        run.root_.string(), has_metrics(run) ? " and --overwrite" : "");
  if (!path_exists(run.config())) restore_settings(run);
  open(run.root_);
  return run;
}

void RunFolder::saved() const {
  if (!claim_ || !claim_->replaced) return;
  try {
    remove_path(replaced_path(root_));
  } catch (const Error& error) {
    log::warn("The run that was replaced is still there: {}", error.what());
  }
  claim_->replaced.reset();
}

void RunFolder::discard() const {
  if (!claim_ || !claim_->lock->in_place()) return;
  try {
    remove_run(*this);
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
}

std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<fs::path> runs;
  for (const fs::path& entry : folder_entries(folder)) {
    const std::string name = entry.filename().string();
    if (name.starts_with('.') && name.ends_with(kReplacedRun))
      RunFolder::recover(folder / name.substr(1, name.size() - 1 - kReplacedRun.size()));
  }
  for (const fs::path& entry : folder_entries(folder))
    if (!entry.filename().string().starts_with('.') && path_exists(RunFolder(entry).config()))
      runs.push_back(entry);
  return runs;
}

}  // namespace tightloop
