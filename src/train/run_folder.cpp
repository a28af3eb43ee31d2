#include "train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"
#include "core/folder_lock.h"
#include "core/log.h"
#include "train/checkpoint.h"

namespace tightloop {

namespace {

constexpr std::string_view kReplaced = ".replaced";

/// Where a run waits until the one that replaces it has a checkpoint.
fs::path replaced_path(const fs::path& root) {
  return root.parent_path() / fmt::format(".{}{}", root.filename().string(), kReplaced);
}

bool has_checkpoint(const RunFolder& run) { return !checkpoint_steps(run.checkpoints()).empty(); }

bool has_metrics(const RunFolder& run) { return path_exists(run.metrics()) && file_bytes(run.metrics()) > 0; }

/// What is in a folder besides the lock on it.
std::vector<fs::path> content(const fs::path& root) {
  auto entries = folder_entries(root);
  std::erase_if(entries, [](const fs::path& entry) { return entry.filename() == FolderLock::kFile; });
  return entries;
}

/// A run has its settings, or was stopped before they were written and holds nothing but what runs hold.
bool looks_like_run(const RunFolder& run) {
  const auto own = {run.config(), run.metrics(),          run.log(),        run.tokenizer(),
                    run.index(),  run.target_tokenizer(), run.checkpoints()};
  const auto entries = content(run.root());
  return path_exists(run.config()) ||
         (!entries.empty() && std::ranges::all_of(entries, [&](const fs::path& entry) {
           const std::string name = entry.string();
           return std::ranges::count(own, fs::path(name.substr(0, name.rfind(".partial-")))) > 0;
         }));
}

/// Why a new run cannot begin in this folder without --overwrite.
Error taken(const RunFolder& run) {
  const std::string root = run.root().string();
  if (!looks_like_run(run))
    return usage_error("'{}' exists already and is not a run; it is left alone. Choose another --run.name.",
                       root);
  if (!has_checkpoint(run))
    return usage_error(
        "the run '{}' exists already: it has metrics, but no checkpoint to continue from. Choose another "
        "--run.name, or replace it with --overwrite.",
        root);
  return usage_error(
      "the run '{0}' exists already. Continue it with 'tightloop train --resume {0}', choose another "
      "--run.name, or replace it with --overwrite.",
      root);
}

}  // namespace

void RunConfig::describe(Fields& fields) {
  fields.add("dir", dir, "Folder that holds all runs");
  fields.add("name", name, "Name of this run; empty: the configuration file's name");
}

/// What a process holds of a run that it writes to.
struct RunFolder::Claim {
  const fs::path root;
  std::unique_ptr<FolderLock> lock = take(root);
  std::unique_ptr<FolderLock> replaced;  // the lock of the run that was put aside, until it goes

  static std::unique_ptr<FolderLock> take(const fs::path& root) {
    auto lock = std::make_unique<FolderLock>(root);
    if (!lock->held())
      throw usage_error("the run '{}' is in use by {}. Wait for it, or choose another --run.name.",
                        root.string(), lock->owner());
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
      if (lock) remove_path(root);
      move_path(replaced_path(root), root);
      log::warn("'{}' is the run of before again: the new one ended without a checkpoint.", root.string());
    } catch (const Error& error) {
      log::warn("The run of before is in '{}': {}", replaced_path(root).string(), error.what());
    }
  }
};

// "runs/a/" ends in an empty name.
RunFolder::RunFolder(fs::path root) : root_(root.has_filename() ? std::move(root) : root.parent_path()) {}

void RunFolder::recover(const fs::path& folder) {
  const RunFolder run(folder);
  const fs::path root = run.root(), replaced = replaced_path(root);
  if (!path_exists(replaced)) return;
  const FolderLock lock(replaced);
  if (!lock.exclusive()) return;  // a run that replaces it is under way, or may be
  if (has_checkpoint(run)) return remove_path(replaced);
  remove_path(root);
  move_path(replaced, root);
  remove_path(root / FolderLock::kFile);
  log::warn("'{}' is the run of before again: the one that was to replace it never came to a checkpoint.",
            root.string());
}

RunFolder RunFolder::create(const fs::path& root, bool overwrite) {
  RunFolder run(root);
  make_folder(run.root_);
  recover(run.root_);
  run.claim_ = std::make_shared<Claim>(run.root_);
  if (path_exists(replaced_path(run.root_)))
    throw usage_error("the run '{}' is being replaced by another process.", run.root_.string());
  const auto entries = content(run.root_);
  const bool nothing_kept = looks_like_run(run) && !has_checkpoint(run) && !has_metrics(run);
  if (nothing_kept) {
    log::info("The run '{}' was stopped before its first checkpoint; it starts again.", run.root_.string());
    for (const fs::path& entry : entries) remove_path(entry);
  } else if (!entries.empty()) {
    if (!overwrite || !looks_like_run(run)) throw taken(run);
    run.claim_->put_aside();
  }
  for (const auto& folder : {run.tokenizer(), run.checkpoints()}) make_folder(folder);
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
        "the run '{}' is being replaced by another process. The run of before is in '{}' until the new one "
        "has "
        "a checkpoint.",
        run.root_.string(), replaced.string());
  if (!path_exists(run.config()))
    throw usage_error("'{}' is not a run: it has no config.yaml.{}", run.root_.string(),
                      looks_like_run(run) ? " A run was stopped there before it began: start it again." : "");
  return run;
}

RunFolder RunFolder::resume(const fs::path& root) {
  RunFolder run(root);
  recover(run.root_);
  if (!looks_like_run(run))
    throw usage_error("'{}' is not a run: it has no config.yaml.", run.root_.string());
  run.claim_ = std::make_shared<Claim>(run.root_);
  if (!has_checkpoint(run))
    throw checkpoint_error(
        "the run '{}' has no checkpoint yet, so there is nothing to continue from. Start it again with "
        "'tightloop train RECIPE'{}.",
        run.root_.string(), has_metrics(run) ? " and --overwrite" : "");
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
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<fs::path> runs;
  for (const fs::path& entry : folder_entries(folder)) {
    const std::string name = entry.filename().string();
    if (name.starts_with('.') && name.ends_with(kReplaced))
      RunFolder::recover(folder / name.substr(1, name.size() - 1 - kReplaced.size()));
  }
  for (const fs::path& entry : folder_entries(folder))
    if (!entry.filename().string().starts_with('.') && path_exists(RunFolder(entry).config()))
      runs.push_back(entry);
  return runs;
}

}  // namespace tightloop
