#include "cli/model_choice.h"

#include <CLI/App.hpp>
#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "train/run_folder.h"

namespace tightloop::cli {

void ModelChoice::add_to(CLI::App& verb) {
  verb.add_option("--model,--run", path,
                  "A run, a checkpoint or a Hugging Face folder (default: the newest in runs/)");
  verb.add_option("--device", device, "auto, cpu or cuda:N");
  verb.add_option("--precision", precision,
                  "auto, bf16 or fp32 (default: as it was trained; fp32 on a CPU that is slow at that)")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}));
}

std::string ModelChoice::folder() const {
  if (!path.empty()) return path;
  const auto runs = runs_in("runs");
  if (runs.empty()) throw usage_error("there is no run in 'runs'. Name one with --run, or train one first.");
  return std::ranges::max(runs, {}, [](const auto& run) { return file_time(RunFolder(run).config()); });
}

}  // namespace tightloop::cli
