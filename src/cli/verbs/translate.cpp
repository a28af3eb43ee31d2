#include "infer/translate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/at_least.h"
#include "cli/line_input.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

constexpr size_t kAtOnce = 8192;  // the most lines that are read before the first is written
constexpr auto kPause = std::chrono::milliseconds(200);  // without another line, what is there is translated

struct TranslateArguments {
  ModelChoice model;
  std::string input;
  TranslateOptions how;
  bool scores = false, json = false;
  std::set<std::string> given;  // options on the command line
};

/// One line, whatever it holds: tab-separated translations, each behind its score where scores are wanted.
std::string line_of(const std::string& source, const std::vector<TextTranslation>& found,
                    const TranslateArguments& options) {
  if (options.json) {
    nlohmann::json json{{"source", source}, {"translations", nlohmann::json::array()}};
    for (const auto& one : found) json["translations"].push_back({{"text", one.text}, {"score", one.score}});
    return dump(json, /*indent=*/-1);
  }
  std::string line;
  for (const auto& one : found) {
    if (&one != &found.front()) line += '\t';
    if (options.scores) line += fmt::format("{:.4f}\t", one.score);
    line += one.text;
  }
  return line;
}

void translate_lines(LoadedTranslator& run, TranslateArguments& options, LineInput& input) {
  for (bool more = true; more;) {
    std::vector<std::string> lines;
    while (lines.size() < kAtOnce && (lines.empty() || input.comes_within(kPause))) {
      const auto line = input.next();
      more = line.has_value();
      if (!more) break;
      if (line->interrupted) throw Error(ExitCode::kInterrupted, "stopped by Ctrl-C.");
      lines.push_back(line->text);
      if (lines.back().ends_with('\r')) lines.back().pop_back();
    }
    const auto found = [&] {
      ProgressLine progress(fmt::format("Lines from {} on", options.how.first_line + 1), lines.size(),
                            ProgressLine::Unit::kCount);
      options.how.progress = [&](size_t done) { progress.set(done); };
      return translate(*run.model, run.tokenizers, lines, options.how);
    }();
    options.how.progress = {};
    std::string text;
    for (size_t i = 0; i < lines.size(); ++i) text += line_of(lines[i], found[i], options) + "\n";
    put(shown(text));
    options.how.first_line += lines.size();
  }
}

void converse(LoadedTranslator& run, TranslateArguments& options, LineInput& input) {
  put("Type a sentence; Ctrl-D ends.\n");
  while (const auto line = input.next()) {
    if (line->interrupted) {
      put("(Ctrl-D ends)\n");
      continue;
    }
    try {
      const auto found = translate(*run.model, run.tokenizers, {&line->text, 1}, options.how);
      for (const auto& one : found.front())
        put(shown(options.scores ? fmt::format("{:.4f}\t{}\n", one.score, one.text) : one.text + "\n"));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInterrupted) throw;
      clear_interrupt();
      throw_if_interrupted();  // a signal other than Ctrl-C
      put("(stopped)\n");
    }
    ++options.how.first_line;
  }
  put("\n");
}

/// Options that say how to do what is not done.
void say_unused(const TranslateArguments& options) {
  const bool sample = options.how.decode.sample;
  const std::vector<const char*> unused = sample
                                              ? std::vector{"--beam", "--length-penalty"}
                                              : std::vector{"--temperature", "--top-k", "--top-p", "--seed"};
  for (const char* name : unused)
    if (options.given.contains(name))
      log::warn("{} has no effect here: it is for {}.", name,
                sample ? "beam search, and --sample draws translations" : "--sample");
}

void run_verb(TranslateArguments& options) {
  DecodeConfig& decode = options.how.decode;
  say_unused(options);
  if (!decode.sample && decode.nbest > decode.beam)
    throw usage_error("--nbest {} needs a --beam of at least as many; it is {}.", decode.nbest, decode.beam);
  auto run = load_translator(options.model.folder(), options.model.device, {}, options.model.precision);
  options.how.on_cut = [&](size_t line, size_t tokens) {
    log::warn("line {} has {} tokens or more; it is cut to the {} that the model reads.",
              options.how.first_line + line + 1, tokens, run.recipe.model.context);
  };
  if (!options.input.empty() && options.input != "-") {
    require_regular_file(options.input, "a pipe goes to standard input, without --input.");
    const int file = ::open(options.input.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::dup2(file, STDIN_FILENO) < 0)
      throw data_error("cannot read '{}': {}.", options.input, std::strerror(errno));
  }
  const bool typed = ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO);
  LineInput input(typed, "> ", typed && !std::getenv("NO_COLOR") ? "1;36" : nullptr);
  if (typed) return converse(run, options, input);
  translate_lines(run, options, input);
}

}  // namespace

void add_translate(CLI::App& app) {
  auto options = std::make_shared<TranslateArguments>();
  auto* verb = app.add_subcommand("translate", "Translate lines of a file, or from standard input");
  DecodeConfig& decode = options->how.decode;
  options->model.add_to(*verb);
  verb->add_option("--input", options->input, "A file of lines (default, and -: standard input)");
  verb->add_option("--beam", decode.beam, "Beam size; 1: greedy")->check(CLI::Range(1, 1000));
  verb->add_option("--length-penalty", decode.length_penalty,
                   "Above 0: long translations are less at a disadvantage")
      ->check(between(0, 10));
  verb->add_option("--nbest", decode.nbest, "Translations of each line, tab-separated")
      ->check(CLI::Range(1, 1000));
  verb->add_flag("--scores", options->scores, "Put a translation's score before it");
  verb->add_option("--batch-tokens", options->how.batch_tokens,
                   "Source tokens times beam size in a batch; 0: as many as suit the device")
      ->check(at_least(0));
  verb->add_option("--extra-tokens", decode.extra_tokens,
                   "A translation has at most so many tokens more than its source")
      ->check(CLI::Range(1, 100'000));
  verb->add_flag("--sample", decode.sample, "Sample translations instead of beam search");
  verb->add_option("--temperature", decode.temperature, "With --sample: sampling temperature")
      ->check(between(0.01, 100));
  verb->add_option("--top-k", decode.top_k, "With --sample: from this many likeliest tokens; 0: all")
      ->check(at_least(0));
  verb->add_option("--top-p", decode.top_p,
                   "With --sample: nucleus sampling, from the likeliest tokens that make up this probability")
      ->check(between(0, 1));
  verb->add_option("--seed", decode.seed, "With --sample: the same seed gives the same text");
  verb->add_flag("--json", options->json, "For programs: an object a line");
  verb->footer("Example: tightloop translate --run runs/multi30k < test.en > translated.de");
  verb->callback([=] {
    for (const auto* option : verb->get_options())
      if (option->count() > 0) options->given.insert(option->get_name());
    run_verb(*options);
  });
}

}  // namespace tightloop::cli
