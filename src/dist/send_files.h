#pragma once

#include <filesystem>
#include <vector>

#include "dist/processes.h"

namespace tightloop {

/// Files of the main process for those that do not have them: `names` are of files, or of folders with all
/// that is in them, below `root`; what is not there is left out. Where `wanted`, they come to be below that
/// process's own `root`. All processes make this call, with a root and a wish of their own.
void send_files(Processes& processes, const std::filesystem::path& root,
                const std::vector<std::filesystem::path>& names, bool wanted);

}  // namespace tightloop
