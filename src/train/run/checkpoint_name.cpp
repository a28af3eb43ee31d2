#include "train/run/checkpoint_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <sstream>
#include <vector>

#include "core/choice.h"
#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "train/run/best_evaluation.h"
#include "train/run/checkpoint.h"
#include "train/run/run_events.h"
#include "train/run/run_folder.h"

namespace tightloop {

/// What may stand behind '@' besides a step.
enum class CheckpointWord { kBest, kLast };
template <>
inline constexpr auto kChoices<CheckpointWord> = std::to_array<Choice<CheckpointWord>>({
    {CheckpointWord::kBest, "best", "the best by train.best_by"},
    {CheckpointWord::kLast, "last", "the newest that is whole"},
});

namespace {

std::optional<int64_t> step_number(const std::string& text) {
  int64_t step = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return {};
  return step;
}

/// The steps that lines of a file of JSON lines with `word` in them are about.
std::set<int64_t> steps_with(const fs::path& file, std::string_view word) {
  std::set<int64_t> steps;
  if (!is_file(file)) return steps;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    if (line.find(word) == std::string::npos) continue;
    const auto json = nlohmann::json::parse(shallow_json(line), nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("global_step") && json["global_step"].is_number_integer())
      steps.insert(json["global_step"].get<int64_t>());
  }
  return steps;
}

/// Why no checkpoint is known to be the best. One that could not be saved when it was evaluated is not kept
/// as the best, since there is nothing to take.
std::string why_no_best(const RunFolder& run) {
  const auto evaluated = steps_with(run.metrics(), "\"eval/loss\"");
  if (evaluated.empty()) return "no step of it was evaluated on held-out data";
  std::vector<int64_t> lost;
  std::ranges::set_intersection(evaluated, steps_with(run.events(), name_of(RunEvent::kSaveFailed)),
                                std::back_inserter(lost));
  if (!lost.empty())
    return fmt::format("it was evaluated at step {}, whose save failed (events.jsonl says why)", lost.back());
  return fmt::format("it was evaluated at step {}, and no checkpoint says that it is the best",
                     *evaluated.rbegin());
}

/// Names another one, if there is one that can be read.
Error no_best(const fs::path& run, std::vector<int64_t> steps) {
  const fs::path checkpoints = RunFolder(run).checkpoints();
  std::string problem;  // of the newest
  std::erase_if(steps, [&](int64_t step) {
    try {
      read_checkpoint_state(checkpoints, step);
      return false;
    } catch (const Error& error) {
      problem = error.what();
      return true;
    }
  });
  if (steps.empty())
    return checkpoint_error("'{}' knows no best checkpoint, since none of its checkpoints can be read: {}",
                            run.string(), problem);
  return checkpoint_error("'{}' knows no best checkpoint: {}. There {} {}: name one, such as {}@{}.",
                          run.string(), why_no_best(RunFolder(run)),
                          steps.size() == 1 ? "is step" : "are steps", fmt::join(steps, ", "), run.string(),
                          steps.back());
}

}  // namespace

std::optional<CheckpointName> split_checkpoint_name(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos || at == 0 || at + 1 == name.size()) return {};
  return CheckpointName{name.substr(0, at), name.substr(at + 1)};
}

void refuse_checkpoint_name(const fs::path& run) {
  const std::string name = RunFolder(run).root().filename().string();
  if (name.find('@') != std::string::npos)
    throw usage_error(
        "a run cannot be called '{}': '@' stands between a run and one of its checkpoints, as in mine@best. "
        "Choose a name without it.",
        name);
}

std::optional<int64_t> best_step_of(const fs::path& checkpoints) {
  const auto steps = checkpoint_steps(checkpoints);
  for (const int64_t step : std::views::reverse(steps)) {
    try {
      const int64_t best = best_step_in(read_checkpoint_state(checkpoints, step).metadata);
      return best > 0 ? std::optional(best) : std::nullopt;
    } catch (const std::exception&) {
      // A damaged one is for whoever reads it to speak of; an older one knows nearly as much.
    }
  }
  return {};
}

fs::path named_checkpoint(const CheckpointName& name) {
  const auto word = choice_named<CheckpointWord>(name.which);
  const auto number = step_number(name.which);
  if (!word && !number)
    throw usage_error("'{}@{}' names no checkpoint: behind '@' stands best, last or a step, such as {}@300.",
                      name.run.string(), name.which, name.run.string());
  const fs::path checkpoints = RunFolder(name.run).checkpoints();
  const auto steps = checkpoint_steps(checkpoints);
  if (steps.empty()) RunFolder::open(name.run);  // which says so where it is being replaced
  if (steps.empty())
    throw checkpoint_error("'{}' has no checkpoints, so there is no '@{}' of it.", name.run.string(),
                           name.which);
  if (word == CheckpointWord::kLast) return name.run;
  const auto step = number ? number : best_step_of(checkpoints);
  if (!step) throw no_best(name.run, steps);
  if (!std::ranges::count(steps, *step))
    throw checkpoint_error("there is no checkpoint of step {}{} in '{}'; there are: {}.", *step,
                           word ? ", the best one," : "", checkpoints.string(), fmt::join(steps, ", "));
  return checkpoint_folder(checkpoints, *step);
}

fs::path resolve_checkpoint_name(const fs::path& name) {
  if (path_exists(name)) return name;
  const auto parts = split_checkpoint_name(name.string());
  return parts && path_exists(RunFolder(parts->run).checkpoints()) ? named_checkpoint(*parts) : name;
}

Error stray_checkpoint(const fs::path& folder) {
  return usage_error(
      "the checkpoint '{}' is not in the folder checkpoints/ of a run, whose config.yaml has its sizes. Move "
      "it "
      "back there, beside the others, or name a run.",
      folder.string());
}

CheckpointPlace checkpoint_place(const fs::path& folder) {
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();  // "step-1/" ends in no name
  const auto step = checkpoint_step(named.extension() == ".replaced" ? named.stem() : named);
  if (!step || !path_exists(named / "state.json")) return {named, {}};
  // Of a name without parents, seen from inside the run, those of the working folder.
  std::error_code failure;
  const fs::path whole =
      named.parent_path().has_parent_path() ? named : fs::absolute(named, failure).lexically_normal();
  const fs::path run = whole.parent_path().parent_path();
  // One that was moved elsewhere is not what the run has under its name.
  if (whole.parent_path() != RunFolder(run).checkpoints()) return {named, {}};
  return {run, step};
}

}  // namespace tightloop
