#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/watch/run_view.h"

namespace tightloop {

/// A run of a list.
struct ListedRun {
  std::filesystem::path root;
  RunView view;
  uint64_t bytes = 0;   // of all its files
  std::string problem;  // why it cannot be read, where that is so; the view then has the name alone
};

/// The runs in a folder, or the one that the folder is; what was changed last comes first. Only looks: no
/// lock is taken, and what cannot be read is a `problem` of that run. Names that begin with a dot are left
/// out.
std::vector<ListedRun> list_runs(const std::filesystem::path& folder);

}  // namespace tightloop
