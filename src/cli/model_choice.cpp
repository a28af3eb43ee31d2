#include "cli/model_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <ranges>
#include <utility>

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "train/run_folder.h"

namespace tightloop::cli {

std::string existing_run(const std::string& name) {
  constexpr size_t kShownRuns = 8;
  const fs::path in_runs = fs::path("runs") / name;
  if (path_exists(name) || name.empty()) return name;
  if (path_exists(RunFolder(in_runs).config()) || path_exists(RunFolder(in_runs).checkpoints()))
    return in_runs.string();
  RunFolder::recover(name);  // a run that was to be replaced comes back
  if (path_exists(name)) return name;
  std::vector<std::string> names, paths;
  for (const fs::path& run : runs_in("runs")) {
    names.push_back(run.filename().string());
    paths.push_back(run.string());
  }
  const auto by_name = nearest(fs::path(name).filename().string(), names);
  std::string advice;
  if (by_name)
    advice = fmt::format(" Did you mean '{}'?", (fs::path("runs") / *by_name).string());
  else if (!paths.empty())
    advice =
        fmt::format(" There are: {}{}.", fmt::join(paths | std::views::take(kShownRuns), ", "),
                    paths.size() > kShownRuns ? fmt::format(" and {} more", paths.size() - kShownRuns) : "");
  throw usage_error("there is no folder '{}' with a run, a checkpoint or a Hugging Face model.{}", name,
                    advice);
}

void ModelChoice::add_to(CLI::App& verb) {
  verb.add_option("--model,--run", path,
                  "A run, a checkpoint or a Hugging Face folder (default: the newest in runs/)");
  verb.add_option("--device", device, "auto, cpu or cuda:N");
  verb.add_option("--precision", precision,
                  "auto, bf16 or fp32 (default: as it was trained; fp32 on a CPU that is slow at that)")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
}

std::string ModelChoice::folder() const {
  if (!path.empty()) return existing_run(path);
  const auto runs = runs_in("runs");
  if (runs.empty()) throw usage_error("there is no run in 'runs'. Name one with --run, or train one first.");
  const std::string newest =
      std::ranges::max(runs, {}, [](const auto& run) { return file_time(RunFolder(run).config()); }).string();
  if (!std::exchange(said, true)) log::info("The newest run: {} (--run names another).", newest);
  return newest;
}

}  // namespace tightloop::cli
