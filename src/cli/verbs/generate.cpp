#include "infer/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <span>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"
#include "infer/calculator_calls.h"
#include "infer/chat_session.h"
#include "infer/prompts.h"
#include "infer/text_stream.h"

namespace tightloop::cli {

namespace {

struct GenerateArguments {
  ModelChoice model;
  std::optional<std::string> prompt;
  std::string prompts, ids;
  SamplingConfig sampling;
  std::vector<std::string> stops;
  int64_t samples = 1, batch = 32;
  bool json = false, no_calculator = false;
};

/// What a pipe or a file holds; from a terminal nothing is read.
std::string standard_input() {
  if (::isatty(STDIN_FILENO)) {
    log::info("Without --prompt this begins a new document.");
    return "";
  }
  std::string text = read_standard_input();
  if (text.empty())
    throw data_error(
        "standard input is empty, and there is no --prompt: there is nothing to continue. A new document "
        "begins with --prompt ''.");
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void check(const GenerateArguments& options) {
  const int ways = options.prompt.has_value() + !options.prompts.empty() + !options.ids.empty();
  if (ways > 1) throw usage_error("--prompt, --prompts and --ids say what to continue: give one of them.");
  for (const auto& stop : options.stops)
    if (stop.empty()) throw usage_error("a stop string is empty, which would stop every text at once.");
  if (options.samples > 1 && options.sampling.temperature == 0) {
    throw usage_error("at temperature 0 all {} samples would be the same. Give a --temperature or --n 1.",
                      options.samples);
  }
}

std::vector<TextPrompt> chosen_prompts(const GenerateArguments& options, const Tokenizer& tokenizer,
                                       int64_t longest) {
  if (!options.prompts.empty()) return read_prompts(input_named(options.prompts), tokenizer, longest);
  if (!options.ids.empty()) return {ids_prompt(options.ids, tokenizer)};
  return {text_prompt(options.prompt ? *options.prompt : standard_input(), tokenizer, longest)};
}

nlohmann::json answer_json(const TextPrompt& prompt, size_t sample, const Answer& answer,
                           const std::string& text) {
  return {{"prompt", prompt.text}, {"prompt_tokens", prompt.ids.size()}, {"sample", sample}, {"text", text},
          {"ids", answer.ids},     {"end", to_string(answer.end)}};
}

void warn_of_long_prompts(const std::vector<TextPrompt>& prompts, int64_t context) {
  const auto length = [](const TextPrompt& prompt) { return std::ssize(prompt.ids); };
  const auto longer =
      std::ranges::count_if(prompts, [&](const TextPrompt& prompt) { return length(prompt) > context; });
  if (longer == 0) return;
  log::warn("{} longer than the {} tokens that the model was trained on{}: {}.",
            longer == 1 ? "A prompt is" : fmt::format("{} prompts are", longer), context,
            longer == 1 ? "" : ", the longest",
            counted(std::ranges::max(prompts | std::views::transform(length)), "token"));
}

/// Where nothing can be seen of what was generated. A model of conversations ends a text that is none.
void say_what_is_odd(const ModelChoice& choice, const LoadedRun& run, std::span<const TextStream> streams) {
  const auto all = [&](auto&& is) { return std::ranges::all_of(streams, is); };
  const bool nothing = all([](const TextStream& stream) { return stream.text().empty(); });
  if (!all([](const TextStream& stream) {
        return stream.text().find_first_not_of(" \t\r\n") == std::string::npos;
      }))
    return;
  const DataConfig& data = run.recipe.data;
  const bool texts = data.mixture.empty() && (data.source == DataSource::kText || data.generated());
  const bool chats = !texts && chat_template(run.recipe.chat, *run.tokenizer);
  if (nothing && !chats) return;
  log::info("{}{}",
            nothing ? "Nothing was generated: the model ended the text at once."
                    : "Nothing but spaces and line ends was generated.",
            chats ? fmt::format(" If it learned conversations, ask it with: tightloop chat --run {}",
                                shell_word(choice.folder()))
                  : "");
}

void answer(const GenerateArguments& options) {
  check(options);
  auto run = options.model.load();
  const Tokenizer& tokenizer = *run.tokenizer;
  const auto prompts = chosen_prompts(options, tokenizer, longest_prompt(run.recipe.model));
  std::vector<Prompt> rows;
  EqualPrompts equal;
  const auto samples = static_cast<size_t>(options.samples);
  for (const auto& prompt : prompts) {
    const uint64_t first = equal.before(prompt.ids) * samples;
    for (size_t sample = 0; sample < samples; ++sample) rows.push_back({prompt.ids, first + sample});
  }
  warn_of_long_prompts(prompts, run.recipe.model.context);

  // One text alone is shown as it arrives.
  const bool live = rows.size() == 1 && !options.json;
  if (live) put(shown(prompts[0].text));
  std::vector<TextStream> streams;
  for (const Prompt& row : rows) streams.emplace_back(tokenizer, options.stops, row.ids);
  GenerateOptions generation;
  generation.sampling = options.sampling;
  generation.stop_tokens = stop_tokens(run);
  generation.vocab_size = tokenizer.vocab_size();
  const CalculatorCalls calculator(tokenizer);
  if (!options.no_calculator) generation.calculator = &calculator;
  generation.on_token = [&](size_t row, int32_t id) {
    const std::string text = streams[row].add(id);
    if (live) put(shown(text));
    return !streams[row].stopped();
  };
  const auto start = std::chrono::steady_clock::now();
  std::optional<ProgressLine> progress;
  if (rows.size() > 1) progress.emplace("Texts", rows.size(), ProgressLine::Unit::kCount);
  const auto answers =
      generate(*run.model, rows, generation, static_cast<size_t>(options.batch), [&](size_t answered) {
        if (progress) progress->set(answered);
      });
  progress.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  nlohmann::json json{{"step", run.step}, {"results", nlohmann::json::array()}};
  int64_t tokens = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::string rest = streams[row].finish();
    const TextPrompt& prompt = prompts[row / samples];
    json["results"].push_back(answer_json(prompt, row % samples, answers[row], streams[row].text()));
    tokens += static_cast<int64_t>(answers[row].ids.size());
    if (live) put(shown(rest + "\n"));
    const bool cut = answers[row].end == AnswerEnd::kInterrupted;
    if (live || options.json || (cut && answers[row].ids.empty())) continue;
    put(shown(fmt::format("--- prompt {}, sample {}{}\n{}{}\n", row / samples + 1, row % samples + 1,
                          cut ? " (interrupted)" : "", prompt.text, streams[row].text())));
  }
  json["tokens"] = tokens, json["seconds"] = seconds;
  json["tokens_per_second"] = static_cast<double>(tokens) / seconds;
  if (options.json) put(shown(dump(json) + "\n"));
  if (!interrupted()) say_what_is_odd(options.model, run, streams);
  throw_if_interrupted();
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateArguments>();
  auto* verb = app.add_subcommand("generate", "Let a trained model continue a text");
  options->model.add_to(*verb);
  options->model.add_weights_to(*verb);
  verb->add_option("--prompt", options->prompt,
                   "The text to continue; '': a new document (default: what standard input holds, at a "
                   "terminal a new document)");
  verb->add_option(
      "--prompts", options->prompts,
      "A file of them, or -: one a line (an empty one: a new document), or JSONL with 'prompt' or 'ids'");
  verb->add_option("--ids", options->ids, "Token ids to continue, such as 1,2,3");
  verb->add_option("--n", options->samples, "Samples for each prompt")->check(at_least(1));
  add_sampling(*verb, options->sampling);
  verb->add_option("--stop", options->stops, "A text that ends the answer; may be given several times")
      ->allow_extra_args(false);
  verb->add_option("--batch", options->batch, "Texts continued at once")->check(at_least(1));
  verb->add_flag("--no-calculator", options->no_calculator, "Leave calls of the calculator unanswered");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "Examples:\n"
      "  tightloop generate --run runs/quickstart --prompt 'reverse stone =' --temperature 0\n"
      "  tightloop generate --run runs/mine --prompt 'Once upon a time' --max-tokens 200 --n 3");
  verb->callback([=] { answer(*options); });
}

}  // namespace tightloop::cli
