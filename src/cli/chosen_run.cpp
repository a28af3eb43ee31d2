#include <filesystem>

#include "cli/verbs.h"
#include "core/error.h"

namespace tightloop::cli {

std::string chosen_run(const std::string& given) {
  namespace fs = std::filesystem;
  if (!given.empty()) return given;
  fs::path newest;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("runs", none)) {
    const auto config = entry.path() / "config.yaml";
    if (!fs::exists(config)) continue;
    if (newest.empty() || fs::last_write_time(config) > fs::last_write_time(newest / "config.yaml"))
      newest = entry.path();
  }
  if (newest.empty())
    throw usage_error("there is no run in 'runs'. Name one with --run, or train one first.");
  return newest.string();
}

}  // namespace tightloop::cli
