#include "train/run/resume_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/dataset.h"
#include "data/store/fingerprint.h"
#include "train/optim/schedule.h"
#include "train/run/resume_settings.h"
#include "train/run/run_length.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

using nlohmann::json;

constexpr const char *kDocuments = "documents", *kDataKey = "data";

/// An entry of data.mixture without the files that it names.
std::string without_files(const std::string& entry) {
  std::istringstream items(entry);
  std::string kept;
  for (std::string item; items >> item;)
    if (!names_files("data." + item.substr(0, item.find('=')))) kept += item + " ";
  return kept;
}

bool same_but_for_files(const std::vector<std::string>& was, const std::vector<std::string>& is) {
  return std::ranges::equal(was, is, {}, without_files, without_files);
}

double rate(const TrainConfig& train, int64_t step, int64_t width) {
  const double peak = train.optimizer == OptimizerKind::kMuon ? train.matrix_lr * train.lr_scale : train.lr;
  return peak * rates_at(train, step, width).lr_scale;
}

/// Where the rate goes up, to more than what was planned.
std::string rate_note(const Recipe& was, const Recipe& is, int64_t step) {
  if (step == 0 || is.train.steps == 0) return {};
  const double before = rate(was.train, step, was.model.width),
               planned = rate(was.train, step + 1, was.model.width),
               now = rate(is.train, step + 1, is.model.width);
  constexpr double kWorthSaying = 1.001;
  if (now <= std::max(before, planned) * kWorthSaying) return {};
  return fmt::format("The learning rate goes up{}: it was {:.4g} at step {}, it is {:.4g} at step {}.",
                     step > was.train.warmup_steps ? " again" : "", before, step, now, step + 1);
}

std::string nothing_left(const Recipe& recipe, const RunFolder& run, const Checkpoint& checkpoint) {
  const auto& train = recipe.train;
  const int64_t step = checkpoint.step;
  // A run that was stopped in its last evaluation makes up for it.
  const auto& about = checkpoint.metadata;
  if (step == train.steps && about.value("evaluates", false) && about.value("evaluated", int64_t{0}) != step)
    return {};
  const std::string again = fmt::format("tightloop train --resume {}", shell_word(run.root().string()));
  if (train.steps > 0 && step >= train.steps) {
    const std::string longer = train.epochs > 0 ? fmt::format("--train.epochs {}", 2 * train.epochs)
                                                : fmt::format("--train.steps {}", 2 * step);
    if (step > train.steps)
      return fmt::format(
          "The run has done {}, more than {}: there is nothing to do, and nothing was changed. To train "
          "longer: {} {}",
          counted(step, "step"), train.steps, again, longer);
    return fmt::format(
        "The run has done all of its {}: there is nothing to do, and nothing was changed. To train longer: "
        "{} "
        "{}",
        counted(train.steps, "step"), again, longer);
  }
  if (train.stop_at == 0 || step < train.stop_at) return {};
  return fmt::format(
      "The run is at step {} and train.stop_at is {}: there is nothing to do. To go on: {} --train.stop_at 0",
      step, train.stop_at, again);
}

void refuse_unless(const ResumeOptions& options, const std::vector<std::string>& changed, const char* advice,
                   const RunFolder& run) {
  if (options.accept_changed_data || changed.empty()) return;
  std::string settings;
  for (const auto& word : options.settings) settings += " " + shell_word(word);
  throw data_error(
      "the data is not what the run was trained on:\n{}\nNothing was changed. {}. To go on with other data, "
      "its rows counted on from where the run is: tightloop train --resume {} --accept-changed-data{}",
      listed(changed), advice, shell_word(run.root().string()), settings);
}

void check_data(const RunFolder& run, const Checkpoint& checkpoint, const ResumeOptions& options,
                bool other_names, Resumption& resumption) {
  require_run_files(resumption.recipe.data, run);
  ChangedFiles files;
  if (checkpoint.metadata.contains(kDataKey)) {
    files = compare_files(checkpoint.metadata.at(kDataKey), resumption.recipe.data);
  } else if (other_names) {
    files.changed = {"other files are named, and the checkpoint does not say what was in those of before"};
  }
  std::ranges::move(files.moved, std::back_inserter(resumption.notes));
  refuse_unless(options, files.changed,
                "Put the files back, or name them where they are now with --data.train", run);
  std::ranges::move(files.changed, std::back_inserter(resumption.notes));
}

json counts_of(const Documents& documents) {
  return {{"documents", documents.size()}, {"tokens", documents.tokens()}};
}

}  // namespace

void require_run_files(const DataConfig& data, const RunFolder& run) {
  const std::pair<const char*, const std::vector<std::string>*> settings[] = {
      {"train", &data.train},
      {"val", &data.val},
      {"train_target", &data.train_target},
      {"val_target", &data.val_target}};
  for (const auto& [name, patterns] : settings)
    for (const auto& pattern : *patterns) try {
        expand_glob(pattern);
      } catch (const Error& error) {
        throw data_error(
            "{} The run '{}' was trained on it. Name it where it is now, relative to this folder or "
            "absolute: --data.{} NEWPATH",
            error.what(), run.root().string(), name);
      }
}

void warn_of_changed_data(const DataConfig& data, const json& metadata) {
  if (!metadata.contains(kDataKey)) return;
  const auto changed = compare_files(metadata.at(kDataKey), data).changed;
  if (changed.empty()) return;
  log::warn(
      "The data is not what the run was trained on, so that figures cannot be compared with those of its "
      "training: {}{}.",
      changed.front(), changed.size() > 1 ? fmt::format(", and {} more", changed.size() - 1) : "");
}

void keep_counts(const Dataset& dataset, json& metadata) {
  metadata[kDocuments] = {
      {"train", counts_of(*dataset.train)}, {"val", counts_of(*dataset.val)}, {"bad", dataset.bad.total()}};
}

std::vector<std::string> check_counts(const RunFolder& run, const Checkpoint& checkpoint,
                                      const json& metadata, const ResumeOptions& options) {
  if (!metadata.contains(kDocuments)) return {};
  const json& now = metadata.at(kDocuments);
  if (!checkpoint.metadata.contains(kDocuments)) {
    const auto bad = now.at("bad").get<uint64_t>();
    if (bad == 0) return {};
    return {
        fmt::format("The checkpoint does not say how many documents it was trained on. {} records are left "
                    "out now: if the version that it is of took some of them, its rows were others.",
                    bad)};
  }
  const json& before = checkpoint.metadata.at(kDocuments);
  std::vector<std::string> changed;
  for (const char* part : {"train", "val"})
    for (const char* unit : {"documents", "tokens"})
      if (before.at(part).at(unit) != now.at(part).at(unit))
        changed.push_back(fmt::format("{} of {}: were {}, are {}", unit, part,
                                      before.at(part).at(unit).get<uint64_t>(),
                                      now.at(part).at(unit).get<uint64_t>()));
  refuse_unless(options, changed,
                "Where the files are as they were, this version takes other records of them than the one "
                "that began the run: go on with that one",
                run);
  return changed;
}

Resumption check_resume(const RunFolder& run, const Checkpoint& checkpoint, const ResumeOptions& options) {
  if (checkpoint.metadata.contains(kAveraged))
    throw usage_error(
        "'{}' has averaged weights and no state of an optimizer: there is no training to go on with. A new "
        "run from them: tightloop train RECIPE --train.init_from {}",
        run.root().string(), shell_word(run.root().string()));
  Resumption resumption{read_settings(run, checkpoint.metadata, /*all=*/true), {}, {}, {}};
  Recipe& recipe = resumption.recipe;
  const Recipe was = resumption.was = settings_of(checkpoint.metadata, recipe);
  Config config = recipe.bind();
  config.apply(options.settings);
  prefer_command_line(recipe.train, config);
  std::vector<std::string> refused;
  bool other_names = false;
  for (const auto& change : changed_settings(was, recipe)) {
    if (change.key == "train.steps" && recipe.train.epochs > 0) continue;  // it follows
    const bool files = names_files(change.key) && same_but_for_files(was.data.mixture, recipe.data.mixture);
    other_names |= files;
    (files || may_change(change.key) ? resumption.notes : refused).push_back(change.line());
  }
  if (!refused.empty())
    throw usage_error(
        "a run cannot go on with other values of:\n{}\nNothing was changed. To start a new run from its "
        "weights: tightloop train RECIPE --train.init_from {}",
        listed(refused), shell_word(run.root().string()));
  resumption.nothing_to_do = nothing_left(recipe, run, checkpoint);
  if (!resumption.nothing_to_do.empty()) return resumption;
  check_data(run, checkpoint, options, other_names, resumption);
  if (auto note = rate_note(was, recipe, checkpoint.step); !note.empty())
    resumption.notes.push_back(std::move(note));
  return resumption;
}

void check_resumed_epochs(const Recipe& recipe, const RunFolder& run, const Checkpoint& checkpoint,
                          Resumption& resumption) {
  if (resumption.recipe.train.steps > 0) return;  // they were known before
  resumption.nothing_to_do = nothing_left(recipe, run, checkpoint);
  if (auto note = rate_note(resumption.was, recipe, checkpoint.step); !note.empty())
    resumption.notes.push_back(std::move(note));
}

}  // namespace tightloop
