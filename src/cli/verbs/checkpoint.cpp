#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_diff.h"
#include "train/run/checkpoint_list.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_folder.h"
#include "train/run/run_settings.h"

namespace tightloop::cli {

namespace {

struct CheckpointArguments {
  std::string run, other;
  std::optional<int64_t> step, every;
  int64_t keep = 0;
  bool keep_best = false, drop_best = false, dry_run = false, json = false;
};

/// The run that was named, or the newest; and the checkpoint of it, where one was.
struct ChosenCheckpoint {
  RunFolder run;
  std::optional<int64_t> step;
};

std::string named_steps(const std::vector<int64_t>& steps) {
  return fmt::format("step{} {}", steps.size() == 1 ? "" : "s", fmt::join(steps, ", "));
}

ChosenCheckpoint choose(const std::string& name) {
  const auto [root, step] = checkpoint_place(ModelChoice{.path = name}.folder());
  const RunFolder run(root);
  if (checkpoint_steps(run.checkpoints()).empty())
    throw is_file(run.config()) || is_folder(run.checkpoints())
        ? checkpoint_error("there is no checkpoint in '{}'.", run.checkpoints().string())
        : usage_error("'{}' is not a run with checkpoints.", root.string());
  return {run, step};
}

std::string what_it_is(const CheckpointFacts& facts) {
  std::vector<std::string> words;
  if (facts.best) {
    const auto& best = facts.best_evaluation;
    words.push_back(best.contains("value") ? fmt::format("best ({} {:.4f})", best.value("by", "loss"),
                                                         best["value"].get<double>())
                                           : "best");
  }
  if (facts.newest) words.push_back("newest");
  if (facts.kept) words.push_back("kept for ever");
  if (facts.in_passing) words.push_back("in passing");
  return fmt::format("{}", fmt::join(words, ", "));
}

nlohmann::json facts_json(const CheckpointFacts& facts) {
  nlohmann::json json{{"step", facts.step},
                      {"bytes", facts.bytes},
                      {"age_seconds", facts.age},
                      {"newest", facts.newest},
                      {"best", facts.best},
                      {"kept", facts.kept},
                      {"in_passing", facts.in_passing},
                      {"state", name_of(facts.health)}};
  if (!facts.problem.empty()) json["problem"] = facts.problem;
  if (!facts.best_evaluation.is_null()) json["evaluation"] = facts.best_evaluation;
  return json;
}

/// In a word or two; what is wrong with a damaged one is for verify and --json to say.
std::string health_text(const CheckpointFacts& facts) {
  std::string text(name_of(facts.health));
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
    if (facts.problem.find(file) != std::string::npos) return text + ": " + file;
  return text;
}

void list(const CheckpointArguments& options) {
  const auto run = choose(options.run).run;
  const auto all = list_checkpoints(run);
  if (options.json) {
    nlohmann::json json{{"run", run.root().string()}, {"checkpoints", nlohmann::json::array()}};
    for (const auto& facts : all) json["checkpoints"].push_back(facts_json(facts));
    return put(dump(json) + "\n");
  }
  uint64_t bytes = 0;
  size_t width = 10;
  for (const auto& facts : all) bytes += facts.bytes, width = std::max(width, what_it_is(facts).size());
  std::string text = fmt::format("{}: {}, {}\n", run.root().string(), counted(all.size(), "checkpoint"),
                                 human_bytes(static_cast<double>(bytes)));
  text += fmt::format("{:>10}  {:>10}  {:>8}  {:<{}}  {}\n", "step", "size", "age", "what it is", width,
                      "checksums");
  for (const auto& facts : all)
    text += fmt::format("{:>10}  {:>10}  {:>8}  {:<{}}  {}\n", facts.step,
                        human_bytes(static_cast<double>(facts.bytes)), human_seconds(facts.age),
                        what_it_is(facts), width, health_text(facts));
  put(shown(text));
}

/// Whether RUN@last was named, which stands for the run's folder.
bool names_last(const std::string& name, const RunFolder& run) {
  const auto parts = split_checkpoint_name(name);
  return parts && parts->which == "last" && !run.root().string().ends_with(name);
}

void verify(const CheckpointArguments& options) {
  auto [run, named] = choose(options.run);
  // Not the newest that is whole: whether the newest is, is the question.
  if (!named && names_last(options.run, run)) named = checkpoint_steps(run.checkpoints()).back();
  if (named && options.step)
    throw usage_error("'{}' names a step, and --step does, too: give one of them.", options.run);
  const auto step = named ? named : options.step;
  auto steps = checkpoint_steps(run.checkpoints());
  if (step && !std::ranges::count(steps, *step))
    throw checkpoint_error("there is no checkpoint of step {} in '{}'; there are: {}.", *step,
                           run.checkpoints().string(), fmt::join(steps, ", "));
  if (step) steps = {*step};
  nlohmann::json json{{"run", run.root().string()}, {"checkpoints", nlohmann::json::array()}};
  std::vector<int64_t> damaged;
  for (const int64_t one : steps) {
    throw_if_interrupted();
    nlohmann::json found{{"step", one}, {"whole", true}};
    try {
      verify_checkpoint(run.checkpoints(), one);
      if (!options.json) put(fmt::format("step {}: whole, all checksums match\n", one));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kCheckpoint) throw;
      found["whole"] = false, found["problem"] = error.what();
      damaged.push_back(one);
      if (!options.json) put(shown(fmt::format("step {}: {}\n", one, error.what())));
    }
    json["checkpoints"].push_back(found);
  }
  if (options.json) put(dump(json) + "\n");
  if (damaged.empty()) return;
  finish_output();
  throw checkpoint_error("{} of {} cannot be used: {}.", damaged.size(), counted(steps.size(), "checkpoint"),
                         named_steps(damaged));
}

/// Of values that hold others, a line for each that differs: "best/step: was 2, is 8".
std::vector<std::string> changed_values(const std::string& key, const nlohmann::json& was,
                                        const nlohmann::json& is) {
  const auto text = [](const nlohmann::json& json) {
    return json.is_null() ? "not there" : dump(json, /*indent=*/-1);
  };
  if (!was.is_structured() || !is.is_structured())
    return {fmt::format("{}: was {}, is {}", key, text(was), text(is))};
  const auto before = was.flatten(), now = is.flatten();
  std::set<std::string> paths;
  for (const auto* side : {&before, &now})
    for (const auto& [path, value] : side->items()) paths.insert(path);
  std::vector<std::string> lines;
  for (const std::string& path : paths) {
    const auto first = before.value(path, nlohmann::json()), second = now.value(path, nlohmann::json());
    if (first != second)
      lines.push_back(fmt::format("{}{}: was {}, is {}", key, path, text(first), text(second)));
  }
  return lines;
}

/// A checkpoint that is compared, and its name for people.
struct ComparedCheckpoint {
  std::string run;
  Checkpoint checkpoint;
  std::string name() const { return fmt::format("{}, step {}", run, checkpoint.step); }
  nlohmann::json json() const { return {{"run", run}, {"step", checkpoint.step}}; }
};

nlohmann::json difference_json(const CheckpointDifference& found) {
  nlohmann::json json{{"same_tensors", found.same},
                      {"tensors", nlohmann::json::array()},
                      {"settings", nlohmann::json::object()},
                      {"metadata", nlohmann::json::object()}};
  for (const auto& tensor : found.tensors) {
    auto& one = json["tensors"].emplace_back(nlohmann::json{{"file", tensor.file}, {"name", tensor.name}});
    if (!tensor.note.empty()) {
      one["note"] = tensor.note;
      continue;
    }
    one["largest"] = tensor.largest, one["relative"] = tensor.relative;
    if (tensor.not_finite > 0) one["not_finite"] = tensor.not_finite;
  }
  for (const auto& setting : found.settings)
    json["settings"][setting.key] = {{"was", setting_json(setting.was)}, {"is", setting_json(setting.is)}};
  for (const auto& [key, values] : found.metadata)
    json["metadata"][key] = {{"was", values.first}, {"is", values.second}};
  return json;
}

std::string difference_text(const CheckpointDifference& found) {
  if (found.tensors.empty() && found.settings.empty() && found.metadata.empty())
    return fmt::format("no difference: {} the same\n",
                       found.same == 1 ? "the one tensor is" : fmt::format("all {} tensors are", found.same));
  std::string text = fmt::format("{} {}, {} {} the same\n", counted(found.tensors.size(), "tensor"),
                                 found.tensors.size() == 1 ? "differs" : "differ", found.same,
                                 found.same == 1 ? "is" : "are");
  if (!found.tensors.empty())
    text += fmt::format("{:>18}  {:>8}  {}\n", "largest difference", "relative", "tensor");
  for (const auto& tensor : found.tensors) {
    const auto left_out = tensor.not_finite > 0 ? fmt::format(", but for {} not finite in one of them",
                                                              counted(tensor.not_finite, "number"))
                                                : "";
    text += tensor.note.empty()
                ? fmt::format("{:>18.3e}  {:>8.2e}  {}: {}{}\n", tensor.largest, tensor.relative, tensor.file,
                              tensor.name, left_out)
                : fmt::format("{:>28}  {}: {}, {}\n", "", tensor.file, tensor.name, tensor.note);
  }
  if (!found.settings.empty()) text += "settings\n";
  for (const auto& setting : found.settings) text += "  " + setting.line() + "\n";
  if (!found.metadata.empty()) text += "metadata\n";
  for (const auto& [key, values] : found.metadata)
    text += listed(changed_values(key, values.first, values.second)) + "\n";
  return text;
}

void diff(const CheckpointArguments& options) {
  const auto load = [](const std::string& name) {
    const auto [run, step] = choose(name);
    return ComparedCheckpoint{run.root().string(), load_checkpoint(run.checkpoints(), step)};
  };
  const auto a = load(options.run), b = load(options.other);
  const auto found = compare_checkpoints(a.checkpoint, b.checkpoint);
  if (!options.json)
    return put(shown(fmt::format("was: {}; is: {}\n", a.name(), b.name()) + difference_text(found)));
  auto json = difference_json(found);
  json["was"] = a.json(), json["is"] = b.json();
  put(dump(json) + "\n");
}

/// The steps whose checkpoints verify, in order: others are neither counted nor removed.
std::vector<int64_t> whole_steps(const RunFolder& run, const std::vector<CheckpointFacts>& facts) {
  std::vector<int64_t> steps;
  for (const auto& one : facts) {
    throw_if_interrupted();
    try {
      if (one.health != CheckpointHealth::kVerified) verify_checkpoint(run.checkpoints(), one.step);
      steps.push_back(one.step);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kCheckpoint) throw;
      log::warn("The checkpoint of step {} cannot be used, and is left as it is: {}", one.step, error.what());
    }
  }
  if (steps.empty())
    throw checkpoint_error("none of the checkpoints in '{}' can be read, so none is removed.",
                           run.checkpoints().string());
  return steps;
}

void prune(const CheckpointArguments& options) {
  const auto [named, step] = choose(options.run);
  if (step) throw usage_error("'{}' is one checkpoint; name the run to prune.", options.run);
  // Held until the end: a run that is being trained removes its checkpoints itself.
  const RunFolder run = options.dry_run ? named : RunFolder::resume(named.root());
  const auto facts = list_checkpoints(run);
  const auto steps = whole_steps(run, facts);
  Recipe recipe;
  recipe.bind().load(run.config());
  const Retention retention{.newest = steps.back(),
                            .keep = options.keep,
                            .best = options.drop_best ? 0 : best_step_of(run.checkpoints()).value_or(0),
                            .every = options.every.value_or(recipe.train.keep_every)};
  const auto gone = checkpoints_to_remove(steps, retention);
  uint64_t bytes = 0;
  for (const auto& one : facts)
    if (std::ranges::count(gone, one.step)) bytes += one.bytes;
  if (!options.dry_run) remove_checkpoints(run.checkpoints(), gone);
  const auto left = checkpoint_steps(run.checkpoints());
  const auto stays = [&](int64_t one) { return !std::ranges::count(gone, one); };
  std::vector<int64_t> kept;
  std::ranges::copy_if(left, std::back_inserter(kept),
                       [&](int64_t one) { return !options.dry_run || stays(one); });
  if (options.json)
    return put(dump(nlohmann::json{{"run", run.root().string()},
                                   {"dry_run", options.dry_run},
                                   {"removed", gone},
                                   {"kept", kept},
                                   {"bytes", bytes}}) +
               "\n");
  const std::string staying = named_steps(kept) + (kept.size() == 1 ? " stays" : " stay");
  if (gone.empty()) return put(fmt::format("nothing to remove: {}\n", staying));
  put(fmt::format("{} {}, {}; {}\n", options.dry_run ? "would remove" : "removed", named_steps(gone),
                  human_bytes(static_cast<double>(bytes)), staying));
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  auto* checkpoint = app.add_subcommand("checkpoint", "List, verify, compare and remove a run's checkpoints");
  checkpoint->require_subcommand(1);
  checkpoint->footer(
      "Examples:\n"
      "  tightloop checkpoint ls runs/quickstart\n"
      "  tightloop checkpoint verify runs/quickstart\n"
      "  tightloop checkpoint diff runs/quickstart@550 runs/quickstart@last\n"
      "  tightloop checkpoint prune runs/quickstart --keep 1 --dry-run");
  const auto add = [&](const char* name, const char* about, const char* example, auto action) {
    auto options = std::make_shared<CheckpointArguments>();
    auto* verb = checkpoint->add_subcommand(name, about);
    verb->footer(std::string("Example: tightloop checkpoint ") + example);
    verb->callback([=] { action(*options); });
    return std::pair{verb, options};
  };
  constexpr const char* kRun = "Folder of a run (default: the newest in runs/)";
  const auto json = [](CLI::App* verb, CheckpointArguments& options) {
    verb->add_flag("--json", options.json, "For programs");
  };

  const auto [ls, listed] =
      add("ls", "Steps, sizes, ages, and which is the best, the newest or kept for ever",
          "ls runs/quickstart --json", list);
  ls->add_option("RUN", listed->run, kRun);
  json(ls, *listed);

  const auto [check, checked] =
      add("verify", "Read every byte and compare checksums; exit code 4 where one is damaged",
          "verify runs/quickstart", verify);
  check->add_option("RUN", checked->run, kRun);
  check->add_option("--step", checked->step, "This checkpoint alone (default: all)")->check(at_least(0));
  json(check, *checked);

  const auto [compare, compared] =
      add("diff", "In which tensors, settings and metadata two checkpoints differ",
          "diff runs/quickstart@550 runs/quickstart@best", diff);
  compare->add_option("A", compared->run, "A checkpoint: RUN@300, RUN@best, RUN, or its folder")->required();
  compare->add_option("B", compared->other, "Another one, of the same run or not")->required();
  json(compare, *compared);

  const auto [thin, pruned] = add("prune", "Remove older checkpoints; the newest that is whole always stays",
                                  "prune runs/quickstart --keep 2 --dry-run", prune);
  thin->add_option("RUN", pruned->run, "Folder of a run")->required();
  thin->add_option("--keep", pruned->keep, "How many of the newest stay")->required()->check(at_least(1));
  auto* keeps =
      thin->add_flag("--keep-best", pruned->keep_best, "The best one stays, too (default: it does)");
  thin->add_flag("--drop-best", pruned->drop_best, "It does not, unless it is one of the others that stay")
      ->excludes(keeps);
  thin->add_option("--every", pruned->every,
                   "Multiples of this stay, too; 0: none (default: the run's train.keep_every)")
      ->check(at_least(0));
  thin->add_flag("--dry-run", pruned->dry_run, "Say what would be removed, and remove nothing");
  json(thin, *pruned);
}

}  // namespace tightloop::cli
