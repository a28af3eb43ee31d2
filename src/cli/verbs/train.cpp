#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/exam_report.h"
#include "cli/last_words.h"
#include "cli/main_settings.h"
#include "cli/model_choice.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/plain.h"
#include "core/terminal/terminal.h"
#include "dist/agreement.h"
#include "dist/launch_text.h"
#include "dist/processes.h"
#include "dist/send_files.h"
#include "infer/exam.h"
#include "infer/suite/training_suite.h"
#include "infer/training_samples.h"
#include "infer/translate.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_name.h"
#include "train/run/resume_check.h"
#include "train/run/run_share.h"
#include "train/run/same_start.h"
#include "train/settings/doubtful_settings.h"
#include "train/settings/unused_settings.h"
#include "train/trainer.h"

namespace tightloop::cli {

namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  std::string file, resume;
  bool overwrite = false, accept_changed_data = false;

  /// --resume auto: the recipe's run goes on where it exists and begins where not. Without a recipe, "auto"
  /// is the name of a run like any other.
  bool automatic() const { return !file.empty() && resume == "auto"; }
};

fs::path run_path(const RunConfig& run, const std::string& file) {
  if (run.name.find('/') != std::string::npos || run.name == ".." || run.name == ".")
    throw usage_error(
        "run.name '{}' is no name of a folder in '{}' (run.dir). Another place for runs: --run.dir FOLDER.",
        run.name, run.dir);
  const fs::path root = fs::path(run.dir) / (run.name.empty() ? fs::path(file).stem().string() : run.name);
  refuse_checkpoint_name(root);
  return root;
}

/// Questions that a model of tasks was not trained on. The run is saved: a failure is a warning.
void examine(Trainer& trainer) {
  try {
    const auto exam = exam_of(held_out_questions(trainer.recipe().tasks), trainer.tokenizer());
    log::info("{}", to_text(take_exam(trainer.model(), trainer.tokenizer(), exam,
                                      greedy_exam(exam, trainer.tokenizer()))));
  } catch (const std::exception& error) {
    if (interrupted()) throw;
    log::warn("The exam on held-out questions failed: {}", error.what());
  }
}

/// Says how the run ended.
void finish(Trainer& trainer, const TrainResult& result, const fs::path& root) {
  if (!std::ranges::count(checkpoint_steps(RunFolder(root).checkpoints()), result.step))
    throw checkpoint_error("step {} was saved in '{}' and is not there any more.", result.step,
                           root.string());
  const int64_t stop_at = trainer.recipe().train.stop_at;
  const std::string again = fmt::format("tightloop train --resume {}{}", shell_word(root.string()),
                                        stop_at > 0 && result.step >= stop_at ? " --train.stop_at 0" : "");
  if (result.interrupted)
    return log::info("Stopped after step {}; everything is saved. Go on with: {}", result.step, again);
  if (result.losses.size() > 2) log::info("Training loss\n{}", chart(result.losses, 60, 8));
  log::info("Trained to step {} in {}; saved in {}.", result.step, human_seconds(result.seconds),
            root.string());
  if (result.step < trainer.recipe().train.steps && !result.stopped_early)
    return log::info("Go on with: {}", again);
  if (trainer.recipe().data.source == DataSource::kTasks) examine(trainer);
}

/// BLEU and chrF of some held-out pairs, where the recipe wants them.
void evaluate_translations(Trainer& trainer) {
  const auto held_out = trainer.task().held_out_pairs();
  const auto& train = trainer.recipe().train;
  if (!held_out || train.eval_translations == 0) return;
  trainer.also_evaluate(SplitMeasure{
      .count =
          [held_out, &train](int rank, int world) {
            TranslateOptions how;
            how.decode.beam = 1;  // the final word is 'tightloop eval' or 'translate', with a beam
            return held_out_scores(held_out->model, held_out->pairs, held_out->target, how,
                                   {.tokens = train.bleu_tokenize}, train.eval_translations, rank, world)
                .counts.numbers();
          },
      .values = [](const std::vector<int64_t>& numbers) -> Task::Evaluation {
        const auto counts = TranslationCounts::of(numbers);
        return {{"eval/bleu", corpus_bleu(counts.words).score}, {"eval/chrf", chrf(counts.characters)}};
      }});
}

/// The folder of the run that --resume names.
fs::path resumed_run(const std::string& name) {
  const auto [run, step] = checkpoint_place(existing_run(name));
  if (!step && path_exists(run / "state.json")) throw stray_checkpoint(name);
  if (!step) return run;
  const auto steps = checkpoint_steps(RunFolder(run).checkpoints());
  if (steps.empty() || *step == steps.back()) return run;
  // Until it is saved again, whatever reads the run would take the later checkpoints for its course.
  throw usage_error(
      "'{}' goes on from its newest checkpoint, of step {}, not from step {}: later ones would be of another "
      "course. A new run from the weights of step {}: tightloop train RECIPE --train.init_from {} --run.name "
      "NAME. To go back in this run, move what is later out of '{}' first.",
      run.string(), steps.back(), *step, *step, shell_word(fmt::format("{}@{}", run.string(), *step)),
      RunFolder(run).checkpoints().string());
}

/// The run's folder, and whether it begins. The main process alone looks for it, and touches it.
struct ClaimedRun {
  RunFolder run;
  bool is_new = true;
};

ClaimedRun claim(const Recipe& recipe, const TrainArguments& options, Processes& processes) {
  constexpr const char *kNew = "new", *kResumed = "resumed";
  if (!processes.main()) return {RunFolder(fs::path()), processes.broadcast_text({}) == kNew};
  const fs::path root =
      options.file.empty() ? resumed_run(options.resume) : run_path(recipe.run, options.file);
  bool is_new = options.resume.empty();
  if (options.automatic()) {
    RunFolder::recover(root);
    is_new = checkpoint_steps(RunFolder(root).checkpoints()).empty();
  }
  // A run without a checkpoint, whose process was killed early, is no reason not to begin again.
  auto run =
      is_new ? RunFolder::create(root, options.overwrite || options.automatic()) : RunFolder::resume(root);
  processes.broadcast_text(is_new ? kNew : kResumed);
  return {std::move(run), is_new};
}

/// The checkpoint to go on from, the same in every process: which of them can be read is the main one's word.
Checkpoint choose_checkpoint(RunShare& share, Processes& processes) {
  const fs::path checkpoints = share.run().checkpoints();
  const at::Tensor step = at::zeros({}, at::kLong);
  Checkpoint checkpoint;
  if (processes.main()) {
    checkpoint = load_checkpoint(checkpoints);
    step.fill_(checkpoint.step);
  }
  processes.broadcast(step);
  share.send_settings();
  share.send_checkpoint(step.item<int64_t>());
  return processes.main() ? std::move(checkpoint) : load_checkpoint(checkpoints, step.item<int64_t>());
}

/// What is said of a recipe before it is trained.
struct Preface {
  std::vector<std::string> notes, warnings;
};

/// The trainer of a run. A new run that cannot begin leaves no folder behind.
std::unique_ptr<Trainer> begin(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options,
                               const Preface& preface) {
  try {
    if (options.processes->main()) log::to_file(run.log());
    for (const auto& note : preface.notes) log::info("{}", note);
    if (options.processes->main())
      for (const auto& sentence : preface.warnings) log::warn("{}", sentence);
    auto trainer = std::make_unique<Trainer>(recipe, run, options);
    if (options.processes->main()) {  // what cannot be read is found now
      const auto stops = imported_stop_tokens(trainer->metadata());
      trainer->also_sample(training_sampler(trainer->task(), trainer->recipe(), stops));
      trainer->also_measure(training_suite(trainer->task(), trainer->recipe(), stops));
    }
    return trainer;
  } catch (...) {
    if (options.processes->main() && !options.resume_from) run.discard();
    throw;
  }
}

void require_right_use(const TrainArguments& options) {
  if (options.file.empty() == options.resume.empty() && !options.automatic()) {
    throw usage_error(
        "name a recipe, or a run to go on with: tightloop train configs/text.yaml --data.train FILES, or "
        "tightloop train --resume runs/NAME. Not both, but for '--resume auto', which goes on with the "
        "recipe's "
        "run where it exists.");
  }
  if (options.accept_changed_data && options.resume.empty())
    throw usage_error("--accept-changed-data goes with --resume.");
  if (options.overwrite && !options.resume.empty())
    throw usage_error("--overwrite replaces a run by a new one, and --resume goes on with it: not both.");
  if (options.file.empty() && options.resume == "auto" && !path_exists("auto") && !path_exists("runs/auto"))
    throw usage_error(
        "'--resume auto' stands behind a recipe, whose run it goes on with or begins: tightloop train RECIPE "
        "--resume auto. A run alone is resumed by its name: tightloop train --resume runs/NAME");
}

ExitCode nothing_to_do(const Resumption& resumption) {
  log::info("{}", resumption.nothing_to_do);
  return ExitCode::kOk;
}

/// One for which nothing is left to do ends well, and the others would lose it.
void require_same_length(Processes& processes, const TrainConfig& train) {
  require_agreement(processes, {{"train.steps", std::to_string(train.steps)},
                                {"train.epochs", fmt::format("{}", train.epochs)},
                                {"train.stop_at", std::to_string(train.stop_at)}});
}

/// Gives the exit code.
ExitCode train_with(Processes& processes, const TrainArguments& options, const Settings& settings) {
  require_right_use(options);
  if (processes.world() > 1)
    require_agreement(processes, {{"to do", options.automatic()      ? "RECIPE --resume auto"
                                            : options.resume.empty() ? "a new run"
                                                                     : "--resume"}});
  Recipe recipe;
  Preface preface;
  if (!options.file.empty()) {
    recipe = read_recipe(options.file, settings, &preface.notes);
    require_files(recipe.data);
    if (recipe.train.lr < 0 && recipe.train.init_from.empty())
      throw usage_error(
          "this recipe fine-tunes a model that is trained already: name a run, a checkpoint or a Hugging "
          "Face "
          "folder with --train.init_from. To train one from scratch there is configs/text.yaml.");
    recipe.world = processes.world();
    preface.warnings = unused_settings(recipe);
    std::ranges::move(doubtful_settings(recipe), std::back_inserter(preface.warnings));
  }
  if (processes.world() > 1) terminal::use_plain_lines();
  if (!processes.main()) log::set_terminal_level(log::Level::kWarning);  // the main process speaks for all
  if (!options.file.empty()) require_same_start(processes, recipe);
  const auto [claimed, is_new] = claim(recipe, options, processes);
  RunShare share(claimed, processes);
  const RunFolder& run = share.run();
  TrainerOptions how{.processes = &processes, .share = &share};
  Resumption resumption;
  if (!is_new) {
    how.resume_from = choose_checkpoint(share, processes);
    resumption = check_resume(run, *how.resume_from, {settings, options.accept_changed_data});
    require_same_length(processes, resumption.recipe.train);
    if (!resumption.nothing_to_do.empty()) return nothing_to_do(resumption);
    recipe = resumption.recipe;
    require_same_start(processes, recipe);
    preface = {};
    if (options.automatic())
      preface.notes.push_back(fmt::format(
          "The run '{}' exists and goes on, with its own settings and those of the command line; '{}' is not "
          "read again.",
          run.root().string(), options.file));
    preface.warnings = doubtful_settings(recipe);
    for (const auto& said : doubtful_settings(resumption.was)) std::erase(preface.warnings, said);
  }
  if (auto text = launch_text(processes); !text.empty()) preface.notes.insert(preface.notes.begin(), text);
  const auto begun = begin(recipe, run, how, preface);
  Trainer& trainer = *begun;
  if (!is_new) {
    std::ranges::move(
        check_counts(run, *how.resume_from, trainer.metadata(), {settings, options.accept_changed_data}),
        std::back_inserter(resumption.notes));
    check_resumed_epochs(trainer.recipe(), run, *how.resume_from, resumption);
    if (!resumption.nothing_to_do.empty()) return nothing_to_do(resumption);
  }
  how = {};  // the checkpoint's files are not kept open while newer ones take their place
  share.drop_checkpoints();
  for (const auto& note : resumption.notes) log::info("{}", note);
  evaluate_translations(trainer);
  const TrainResult result = trainer.run();
  if (processes.main()) finish(trainer, result, run.root());
  return result.interrupted ? ExitCode::kInterrupted : ExitCode::kOk;
}

void train(const TrainArguments& options, const Settings& settings) {
  ExitCode code = ExitCode::kOk;
  {
    // Before anything that may fail in one of them and not in the others.
    Processes processes(rendezvous_from_environment(), {}, say_and_exit);
    try {
      code = train_with(processes, options, settings);
    } catch (const std::exception& error) {
      throw processes.fail(error);
    }
  }
  if (code != ExitCode::kOk) throw Stop{static_cast<int>(code)};
}

}  // namespace

void add_train(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<TrainArguments>();
  auto* verb = app.add_subcommand("train", "Train a model by a recipe, or go on with a run");
  verb->add_option("RECIPE", options->file, "A YAML file of settings, such as configs/quickstart.yaml");
  verb->add_option(
      "--resume", options->resume,
      "Go on with the run in this folder, from its newest checkpoint; after a RECIPE, 'auto': with "
      "its run where there is one");
  verb->add_flag("--accept-changed-data", options->accept_changed_data,
                 "With --resume: go on though the data files hold something else than before");
  verb->add_flag("--overwrite", options->overwrite,
                 "Replace a run of the same name, once this one has its first checkpoint");
  verb->footer(
      "Settings that most runs change, with their defaults (a recipe has its own):\n" + main_settings() +
      "'tightloop config' lists all settings; 'tightloop config RECIPE' shows those of a recipe.\n"
      "Examples:\n"
      "  tightloop train configs/quickstart.yaml --train.steps 2000 --run.name longer\n"
      "  tightloop train configs/text.yaml --data.train 'books/*.txt' --run.name mine\n"
      "  tightloop train --resume runs/longer\n"
      "On several GPUs and machines, with torchrun, mpirun or srun (docs/several_gpus.md):\n"
      "  torchrun --no-python --nproc-per-node 8 tightloop train configs/gpt2-124m.yaml --resume auto");
  verb->callback([=] { train(*options, settings); });
}

}  // namespace tightloop::cli
