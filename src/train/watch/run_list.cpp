#include "train/watch/run_list.h"

#include <sys/stat.h>

#include <algorithm>

#include "core/files.h"
#include "core/terminal/terminal.h"
#include "train/run/run_folder.h"
#include "train/watch/run_follower.h"

namespace tightloop {

namespace {

/// Of the files below a folder; links are not followed, and what goes meanwhile does not count.
uint64_t folder_bytes(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code failure;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    struct stat status {};
    if (::lstat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) bytes += status.st_size;
  }
  return bytes;
}

/// A run has a folder of checkpoints from its first moment on, and settings a little later.
bool looks_like_a_run(const fs::path& root) {
  const RunFolder run(root);
  std::error_code ignored;
  return fs::exists(run.config(), ignored) || fs::is_directory(run.checkpoints(), ignored);
}

ListedRun listed_run(const fs::path& root) {
  ListedRun run;
  run.root = root;
  try {
    run.view = summary_of(root);
  } catch (const std::exception& error) {
    run.view.name = printable(root.filename().string());
    run.problem = error.what();
  }
  run.bytes = folder_bytes(root);
  return run;
}

}  // namespace

std::vector<ListedRun> list_runs(const fs::path& folder) {
  std::vector<ListedRun> runs;
  RunFolder::recover(folder);
  if (looks_like_a_run(folder)) {
    runs.push_back(listed_run(RunFolder(folder).root()));
    return runs;
  }
  for (const fs::path& entry : folder_entries(folder)) RunFolder::recover(entry);
  for (const fs::path& entry : folder_entries(folder))
    if (!entry.filename().string().starts_with('.') && looks_like_a_run(entry))
      runs.push_back(listed_run(entry));
  std::ranges::stable_sort(runs, std::greater(), [](const ListedRun& run) { return run.view.news; });
  return runs;
}

}  // namespace tightloop
