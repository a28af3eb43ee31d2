#include "cli/model_choice.h"

#include <CLI/App.hpp>
#include <filesystem>

#include "core/error.h"

namespace tightloop::cli {

void ModelChoice::add_to(CLI::App& verb) {
  verb.add_option("--model,--run", path,
                  "A run, a checkpoint or a Hugging Face folder (default: the newest in runs/)");
  verb.add_option("--device", device, "auto, cpu or cuda:N");
  verb.add_option("--precision", precision, "auto, bf16 or fp32 (default: as it was trained)")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
}

std::string ModelChoice::folder() const {
  namespace fs = std::filesystem;
  if (!path.empty()) return path;
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
