#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/at_least.h"
#include "cli/exam_report.h"
#include "cli/main_settings.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "cli/verbs/json_argument.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/dataset.h"
#include "data/read/json_files.h"
#include "infer/calculator_calls.h"
#include "infer/chat_session.h"
#include "infer/exam.h"
#include "infer/suite/suite.h"
#include "infer/text_loss.h"
#include "infer/text_tokens.h"
#include "infer/translate.h"
#include "train/engine/loss.h"
#include "train/engine/pair_loss.h"
#include "train/run/checkpoint_name.h"
#include "train/run/resume_check.h"
#include "train/run/run_folder.h"
#include "train/run/run_tokenizer.h"
#include "train/run/saved_model.h"
#include "train/settings/loading.h"
#include "train/settings/resolve_source.h"

namespace tightloop::cli {

namespace {

struct EvalArguments {
  ModelChoice model;
  std::string input, questions, suite, details, python, variables;
  int64_t window = 0, stride = 0, batch = 0, limit = -1, samples = 1, max_tokens = 0;
  double temperature = 0.8;
  bool json = false, no_calculator = false;
  std::set<std::string> given;  // options on the command line
};

/// What was measured, for programs and for people.
struct Findings {
  nlohmann::json json;
  std::string text;
};

// A Hugging Face folder does not say what it was trained on.
bool has_data(const DataConfig& data) {
  return data.generated() || !data.train.empty() || !data.mixture.empty();
}

/// What the command line's settings make of a run's.
struct AppliedSettings {
  bool cut = false;         // a text into documents: it is data like the run's own, or the user says how
  bool other_data = false;  // is measured, because the user names it
  bool other_template = false;
};

/// Files that the command line names are read as what they hold; sizes stay those of the run.
AppliedSettings apply_settings(Recipe& recipe, const Settings& settings) {
  Config config = recipe.bind();
  config.apply(settings);
  for (const char* key : {"eval.suite", "eval.suite_steps"})
    if (config.commanded(key))
      throw usage_error("--{} is for training; to measure a suite here: --suite FILE.", key);
  if (config.commanded("data.train") || recipe.data.source == DataSource::kAuto) {
    Recipe resolved = recipe;
    for (const std::string& note : resolve_source(resolved, config)) log::info("{}", note);
    recipe.data.source = resolved.data.source, recipe.data.mixture = resolved.data.mixture;
  }
  return {
      .cut = config.commanded("data.documents") || (has_data(recipe.data) && recipe.data.mixture.empty() &&
                                                    recipe.data.source == DataSource::kText),
      .other_data = config.commanded("data.val"),
      .other_template = config.commanded("chat.template")};
}

/// The run's own data, which must be there; where it has changed since training, that is said.
void check_own_data(const Recipe& recipe, const RunFolder& run, const nlohmann::json& metadata,
                    const AppliedSettings& applied) {
  require_run_files(recipe.data, run);
  if (!applied.other_data) warn_of_changed_data(recipe.data, metadata);
}

void add_loss(const HeldOutLoss& loss, Findings& findings) {
  findings.json.update({{"loss", loss.mean()},
                        {"perplexity", std::exp(loss.mean())},
                        {"accuracy", loss.accuracy()},
                        {"tokens", loss.tokens}});
  if (loss.bytes > 0) findings.json.update({{"bits_per_byte", loss.bits_per_byte()}, {"bytes", loss.bytes}});
  findings.text +=
      fmt::format("held-out loss {:.4f}, perplexity {:.3f}, accuracy {:.1f} %, {}over all {}\n", loss.mean(),
                  std::exp(loss.mean()), 100 * loss.accuracy(),
                  loss.bytes > 0 ? fmt::format("{:.4f} bits per byte, ", loss.bits_per_byte()) : "",
                  counted(loss.tokens, "held-out token"));
}

void measure_text(const EvalArguments& options, LoadedRun& run, bool cut, Findings& findings) {
  const std::string file = input_named(options.input);
  if (is_file(file) && holds_json_records(file))
    log::warn(
        "'{0}' holds JSON records; --input measures their raw text. Questions with answers: --questions {0}. "
        "The loss of conversations, as they are trained on: --data.val {0} in place of --input.",
        options.input);
  const auto text = read_text_tokens(file, cut ? &run.recipe.data : nullptr, *run.tokenizer);
  TextLossOptions how;
  how.window = options.window > 0 ? options.window : run.recipe.model.context;
  if (how.window > run.recipe.model.context)
    log::warn("A window of {} tokens is longer than the {} that the model was trained on (model.context).",
              how.window, run.recipe.model.context);
  how.stride = options.stride;
  if (options.batch > 0) how.rows = options.batch;
  const auto loss = text_loss(*run.model, text.ids, how);
  const double bits = loss.bits_per_byte(text.bytes);
  findings.json.update({{"input", options.input},
                        {"loss", loss.mean()},
                        {"perplexity", std::exp(loss.mean())},
                        {"bits_per_byte", bits},
                        {"tokens", loss.tokens},
                        {"bytes", text.bytes},
                        {"read_as", text.documents > 0 ? "documents" : "text"}});
  if (text.documents > 0) findings.json["documents"] = text.documents;
  findings.text += fmt::format("{}: loss {:.4f}, perplexity {:.3f}, {:.4f} bits per byte, over {}\n",
                               printable(options.input), loss.mean(), std::exp(loss.mean()), bits,
                               counted(loss.tokens, "token"));
  findings.text +=
      text.documents > 0
          ? fmt::format("read as in training: {} (data.documents {}), an end-of-text token behind each\n",
                        text.documents == 1 ? "one document" : fmt::format("{} documents", text.documents),
                        name_of(run.recipe.data.documents))
          : "read as one text, nothing added\n";
}

/// The suite with its problems; nothing where none is named. What is wrong with it is said before anything
/// that takes long.
Suite chosen_suite(const EvalArguments& options) {
  if (options.suite.empty()) return {};
  if (!options.details.empty() && path_exists(options.details))
    throw usage_error("'{}' exists already: name another file for --details.", options.details);
  if (!options.details.empty() && !is_folder(fs::absolute(options.details).parent_path()))
    throw usage_error("the folder of '{}' (--details) does not exist.", options.details);
  return read_suite(options.suite, std::max<int64_t>(options.limit, 0));
}

void measure_suite(const EvalArguments& options, const Suite& suite, LoadedRun& run, const ChatTemplate* chat,
                   const std::vector<int32_t>& stops, Findings& findings) {
  const CalculatorCalls calculator(*run.tokenizer);
  const SuiteModel model{
      *run.model,       *run.tokenizer, chat, stops, options.no_calculator ? nullptr : &calculator,
      options.variables};
  SuiteOptions how;
  how.python = options.python;
  if (options.batch > 0) how.rows = static_cast<size_t>(options.batch);
  if (!chat && std::ranges::any_of(suite.tasks, &SuiteTask::chats))
    ChatTemplate(for_questions(run.recipe.chat), *run.tokenizer);  // which says why there is none
  check_suite(suite, model, how);
  check_problems(suite, model);
  const auto result = run_suite(suite, model, how);
  findings.json.update(to_json(result));
  findings.text += to_text(result);
  if (!options.details.empty()) write_file_whole(options.details, details_of(result));
}

void measure_held_out(const std::string& folder, LoadedRun& run, const Dataset& dataset, Findings& findings) {
  if (dataset.val->size() == 0)
    throw data_error("the run '{}' holds out no data; see data.val and data.holdout.", folder);
  LoaderOptions loading = loading_of(run.recipe, *run.tokenizer);
  loading.shuffle = false;
  Loader loader(dataset.val, loading);
  add_loss(held_out_loss(*run.model, loader, /*limit=*/0), findings);
  if (const int64_t batches = run.recipe.train.eval_batches; batches > 0)
    findings.text += fmt::format("(evaluations in training take at most train.eval_batches {} x {} of it)\n",
                                 batches, counted(run.recipe.train.micro_batch, "row"));
}

/// Options that say how to do what is not done.
void say_unused(const EvalArguments& options, std::initializer_list<const char*> names, const char* why) {
  for (const char* name : names)
    if (options.given.contains(name)) log::warn("{} has no effect here: {}.", name, why);
}

void ask(const EvalArguments& options, LoadedRun& run, const std::vector<ExamQuestion>& exam,
         const std::vector<int32_t>& stops, Findings& findings) {
  if (exam.empty())
    return say_unused(options, {"--limit", "--samples", "--temperature", "--max-tokens"},
                      "there are no questions in the held-out data");
  if (options.samples == 1) say_unused(options, {"--temperature"}, "it is for several --samples");
  ExamOptions how = greedy_exam(exam, *run.tokenizer);
  how.stop_tokens = stops;
  const CalculatorCalls calculator(*run.tokenizer);
  if (!options.no_calculator) how.calculator = &calculator;
  how.samples = options.samples;
  if (options.samples > 1) how.sampling.temperature = options.temperature;
  if (options.max_tokens > 0) how.sampling.max_tokens = options.max_tokens;
  if (options.batch > 0) how.rows = static_cast<size_t>(options.batch);
  auto result = take_exam(*run.model, *run.tokenizer, exam, how);
  for (auto& example : result.examples)
    if (const auto plain = plain_question(example.shown, run.recipe.chat, *run.tokenizer);
        plain != example.shown)
      example.shown = plain + " ->";
  findings.json.update(to_json(result));
  findings.text += to_text(result, ::isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR"));
}

/// The loss of the pairs that a translation run held out; BLEU and chrF of them, by a beam search.
void evaluate_translator(const EvalArguments& options, const std::string& folder, const RunFolder& run_folder,
                         const SavedModel& saved, const Settings& settings) {
  constexpr size_t kShown = 8;
  for (const char* name : {"--input", "--questions", "--suite"})
    if (options.given.contains(name))
      throw usage_error(
          "{}: '{}' is a translator, which is measured on its held-out pairs. Leave it out; other pairs: "
          "--data.val FILE; translations of your own: tightloop translate, then tightloop bleu.",
          name, folder);
  say_unused(options,
             {"--window", "--stride", "--batch", "--samples", "--temperature", "--max-tokens", "--details",
              "--python", "--template-kwargs"},
             "a translator is measured on its held-out pairs");
  if (options.model.weights)
    throw usage_error("--weights: a translator's weights stay as they are. Leave it out.");
  auto run = load_translator(saved, options.model.device, options.model.precision);
  const auto applied = apply_settings(run.recipe, settings);
  check_own_data(run.recipe, run_folder, run.metadata, applied);
  const auto dataset = load_dataset(run.recipe.data, run.recipe.tasks, *run.tokenizers.source,
                                    run.recipe.chat, &run.tokenizers.target(), run_folder.index());
  if (dataset.val->size() == 0) throw usage_error("'{}' held no pairs out.", folder);
  Findings findings{{{"run", folder}, {"step", run.step}}, fmt::format("{} at step {}\n", folder, run.step)};
  PairOptions loading = pair_loading_of(run.recipe);
  loading.shuffle = false;
  PairLoader loader(dataset.val, loading);
  add_loss(held_out_loss(*run.model, loader), findings);
  const BleuOptions bleu{.tokens = run.recipe.train.bleu_tokenize};
  const auto scores = held_out_scores(*run.model, *dataset.val, run.tokenizers.target(), {}, bleu,
                                      std::max<int64_t>(options.limit, 0));
  findings.json.update({{"pairs", scores.pairs},
                        {"bleu", scores.bleu},
                        {"chrf", scores.chrf},
                        {"signature", bleu_signature(bleu, false)}});
  findings.text += fmt::format("BLEU {:.2f}, chrF {:.2f} over {}\n{}\n", scores.bleu, scores.chrf,
                               counted(scores.pairs, "held-out pair"), bleu_signature(bleu, false));
  for (size_t i = 0; i < std::min(kShown, scores.translations.size()); ++i)
    findings.text += fmt::format("  {}\n    expected: {}\n", scores.translations[i], scores.references[i]);
  put(options.json ? dump(findings.json) + "\n" : shown(findings.text));
}

void evaluate(const EvalArguments& options, const Settings& settings) {
  if (options.samples > 1 && options.temperature == 0)
    throw usage_error("at temperature 0 all {} samples would be the same.", options.samples);
  if (!options.variables.empty()) json_argument(options.variables, "--template-kwargs");
  const std::string folder = options.model.folder();
  // Looked for and opened once: a training may remove a checkpoint at any moment.
  const RunFolder run_folder(checkpoint_place(folder).run);
  const SavedModel saved(folder);
  if (saved.recipe().model.translates())
    return evaluate_translator(options, folder, run_folder, saved, settings);
  const Suite suite = chosen_suite(options);
  auto run = load_model(saved, options.model.device, options.model.precision, options.model.weights);
  const auto applied = apply_settings(run.recipe, settings);
  if (applied.other_template) give_chat_template(run.recipe.chat, *run.tokenizer);
  if (options.input.empty()) say_unused(options, {"--window", "--stride"}, "it is for a text (--input)");
  if (!options.input.empty() && options.questions.empty() && options.suite.empty())
    say_unused(options, {"--limit", "--samples", "--temperature", "--max-tokens"},
               "it is for questions, and a text (--input) has none");
  if (options.suite.empty()) say_unused(options, {"--python", "--details"}, "it is for a suite (--suite)");
  if (!options.suite.empty() && options.questions.empty())
    say_unused(options, {"--samples", "--temperature", "--max-tokens"},
               "a suite's file says it of each task");
  const auto chat = chat_template(for_questions(run.recipe.chat), *run.tokenizer);
  if (options.questions.empty() && options.suite.empty())
    say_unused(options, {"--template-kwargs"}, "it is for --questions and chats of a --suite");
  else if (!chat)
    say_unused(options, {"--template-kwargs"}, "the model has no chat template");
  else
    check_template_inputs(*chat, "", options.variables);
  const auto stops = stop_tokens(run);
  Findings findings{{{"run", folder}, {"step", run.step}}, fmt::format("{} at step {}\n", folder, run.step)};
  if (options.model.weights) findings.json["weights"] = name_of(*options.model.weights);
  if (!options.input.empty()) measure_text(options, run, applied.cut, findings);
  if (!options.questions.empty()) {
    const int64_t limit = std::max<int64_t>(options.limit, 0);
    ask(options, run,
        read_exam(input_named(options.questions), run.recipe.data, *run.tokenizer, chat.get(), stops, limit,
                  options.variables),
        stops, findings);
  }
  if (!options.suite.empty()) measure_suite(options, suite, run, chat.get(), stops, findings);
  if (options.input.empty() && options.questions.empty() && options.suite.empty()) {
    if (!has_data(run.recipe.data))
      throw usage_error("'{}' has no data of its own: name a text (--input), --questions or a --suite.",
                        folder);
    check_own_data(run.recipe, run_folder, run.metadata, applied);
    const auto dataset = load_dataset(run.recipe.data, run.recipe.tasks, *run.tokenizer, run.recipe.chat,
                                      nullptr, run_folder.index());
    measure_held_out(folder, run, dataset, findings);
    const bool tasks = run.recipe.data.source == DataSource::kTasks;
    constexpr int64_t kQuestions = 100;  // written-out answers take their time
    auto exam = tasks ? exam_of(held_out_questions(run.recipe.tasks), *run.tokenizer)
                      : exam_of(*dataset.val, dataset.sources, *run.tokenizer, stops,
                                options.limit < 0 ? kQuestions : options.limit);
    if (tasks && options.limit > 0 && options.limit < static_cast<int64_t>(exam.size()))
      exam.resize(options.limit);
    if (!tasks && !exam.empty())
      findings.text += fmt::format(
          "asked are {} of {} held-out conversations: answers of at most {} tokens, or with '####', can be "
          "compared{}\n",
          exam.size(), dataset.val->size(), kShortAnswer,
          options.limit < 0 ? fmt::format("; at most {} of each source (--limit)", kQuestions) : "");
    ask(options, run, exam, stops, findings);
  }
  std::fputs((options.json ? dump(findings.json) + "\n" : findings.text).c_str(), stdout);
}

}  // namespace

void add_eval(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<EvalArguments>();
  auto* verb = app.add_subcommand("eval", "Measure a model on held-out data, a text or questions");
  options->model.add_to(*verb);
  options->model.add_weights_to(*verb);
  verb->add_option("--input", options->input,
                   "A text file, or - for standard input: loss, perplexity, bits per byte");
  verb->add_option("--questions", options->questions,
                   "A JSONL file, or -, of {question, answer} or {question, choices, answer}");
  verb->add_option("--suite", options->suite,
                   "A YAML file of tasks, or nanochat's core.yaml: accuracies and CORE (docs/evaluation.md)");
  verb->add_option("--details", options->details,
                   "Of a suite: a JSONL file for the outcome of every problem");
  verb->add_option("--python", options->python,
                   "Of a suite: the Python that may run programs that the model writes; without it none are");
  verb->add_option(
      "--template-kwargs", options->variables,
      "Of questions and chats of a suite: variables of the chat template, a JSON object, such as "
      "'{\"enable_thinking\": false}'");
  verb->add_flag("--no-calculator", options->no_calculator, "Leave calls of the calculator unanswered");
  verb->add_option("--window", options->window, "Of a text: window size in tokens (default: the context)")
      ->default_str("")
      ->check(at_least(1));
  verb->add_option(
          "--stride", options->stride,
          "Of a text longer than a window: tokens from one window to the next (default: half a window)")
      ->default_str("")
      ->check(at_least(1));
  verb->add_option("--limit", options->limit,
                   "Most questions to ask, of held-out data in each source; 0: all (held-out default: 100)")
      ->default_str("")
      ->check(at_least(0));
  verb->add_option("--batch", options->batch, "Batch size in rows (default: by their length)")
      ->default_str("")
      ->check(at_least(1));
  verb->add_option("--samples", options->samples, "Answers to each question, at --temperature")
      ->check(at_least(1));
  verb->add_option("--temperature", options->temperature, "Sampling temperature of several --samples")
      ->check(at_least(0));
  verb->add_option("--max-tokens", options->max_tokens,
                   "Maximum tokens of an answer (default: a little more than the longest expected)")
      ->default_str("")
      ->check(at_least(1));
  verb->add_flag("--json", options->json, "For programs");
  static constexpr const char* kMeasured[] = {"data.val",     "data.source", "data.documents",
                                              "data.holdout", "chat.form",   "train.bleu_tokenize"};
  verb->footer(
      "Settings of the run that may have another value here, with their defaults (a run has its own):\n" +
      settings_help(kMeasured) + kTakesSettings +
      "Examples:\n"
      "  tightloop eval --run runs/quickstart --json\n"
      "  tightloop eval --run runs/mine --data.val other.txt\n"
      "  tightloop eval --model runs/mine --input my.txt --json\n"
      "  tightloop eval --run runs/mine --suite configs/suites/example.yaml");
  verb->callback([=] {
    for (const auto* option : verb->get_options())
      if (option->count() > 0) options->given.insert(option->get_name());
    evaluate(*options, settings);
  });
}

}  // namespace tightloop::cli
