#include "cli/model_choice.h"
#include "cli/add_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>
#include <ranges>
#include <utility>

#include "core/config.h"
#include "core/error.h"
#include "core/files.h"
#include "core/io/gguf.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_folder.h"
#include "train/watch/run_list.h"

namespace tightloop::cli {

namespace {

/// Such as Qwen/Qwen3-0.6B: an owner that is no folder here, and a name.
bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  return slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
         std::ranges::all_of(name.substr(0, slash), plain) &&
         std::ranges::all_of(name.substr(slash + 1), plain) && !name.starts_with('.') &&
         name.substr(0, slash) != "runs" && !path_exists(name.substr(0, slash));
}

bool is_run(const fs::path& folder) {
  return path_exists(RunFolder(folder).config()) || path_exists(RunFolder(folder).checkpoints());
}

/// A run, a checkpoint or a Hugging Face folder; a folder of data is none.
bool is_model(const fs::path& folder) {
  return !is_folder(folder) || is_run(folder) || path_exists(folder / "state.json") ||
         path_exists(folder / "config.json");
}

}  // namespace

std::string existing_run(const std::string& name, const fs::path& recipes) {
  constexpr size_t kShownRuns = 8;
  const fs::path in_runs = fs::path("runs") / name;
  if (name.empty()) return name;
  for (const fs::path& folder : {fs::path(name), in_runs})
    RunFolder::recover(folder);  // a run that was to be replaced comes back
  if (path_exists(name) && (is_model(name) || !is_run(in_runs))) return name;
  if (is_run(in_runs)) return in_runs.string();
  if (const auto parts = split_checkpoint_name(name);
      parts && (is_run(parts->run) || is_run("runs" / parts->run)))
    return named_checkpoint({existing_run(parts->run.string(), recipes), parts->which}).string();
  const fs::path made_by = recipes / (fs::path(name).filename().string() + ".yaml");
  if ((!fs::path(name).has_parent_path() || fs::path(name).parent_path() == "runs") && is_file(made_by))
    throw usage_error("there is no run '{}' yet. First: tightloop train {}", name,
                      shell_word(made_by.string()));
  if (is_hub_name(name)) {
    std::string folder = fs::path(name).filename().string();
    std::ranges::transform(folder, folder.begin(), [](unsigned char c) { return std::tolower(c); });
    throw usage_error(
        "there is no folder '{0}', and nothing is downloaded here. If it is a model of the Hugging Face hub: "
        "huggingface-cli download {0} --local-dir {1}, then name the folder {1}.",
        name, folder);
  }
  if (is_gguf_name(name)) throw usage_error("there is no file '{}'.", name);
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

std::string run_to_watch() {
  const auto runs = list_runs("runs");
  if (runs.empty()) throw usage_error("there is no run in 'runs'. Name one, or train one first.");
  const auto running =
      std::ranges::find(runs, RunState::kRunning, [](const ListedRun& run) { return run.view.state; });
  return (running == runs.end() ? runs.front() : *running).root.string();
}

std::string existing_run_of(const std::string& name) {
  try {
    return checkpoint_place(existing_run(name)).run.string();
  } catch (const Error& error) {
    const auto parts = split_checkpoint_name(name);
    if (error.code() != ExitCode::kCheckpoint || !parts) throw;
    return existing_run(parts->run.string());  // is all that is asked for: its checkpoint may be gone
  }
}

void ModelChoice::add_to(CLI::App& verb) {
  by_option = true;
  verb.add_option(
      "--model,--run", path,
      "A run (also RUN@best, RUN@300: a checkpoint of it), a checkpoint's or a Hugging Face folder, or a "
      "GGUF file (default: the newest in runs/)");
  add_device_to(verb);
}

void ModelChoice::add_device_to(CLI::App& verb) {
  verb.add_option("--device", device, "auto, cpu or cuda:N");
  add_choice(verb, "--precision", precision,
             "Compute dtype (default: as it was trained; fp32 on a CPU that is slow at that)",
             {Precision::kAuto, Precision::kBf16, Precision::kFp32});
}

void ModelChoice::add_weights_to(CLI::App& verb) {
  add_choice(
      verb, "--weights", weights,
      "Weights packed into 8 or 4 bits while they are loaded: less memory, faster decoding (default: as "
      "they are)");
}

std::string ModelChoice::folder() const {
  if (!path.empty()) return existing_run(path);
  const auto runs = runs_in("runs");
  if (runs.empty())
    throw usage_error("there is no run in 'runs'. Name one{}, or train one first.",
                      by_option ? " with --run" : "");
  const std::string newest =
      std::ranges::max(runs, {}, [](const auto& run) { return file_time(RunFolder(run).config()); }).string();
  if (!std::exchange(said, true)) log::info("The newest run: {} (name one to take another).", newest);
  return newest;
}

}  // namespace tightloop::cli
