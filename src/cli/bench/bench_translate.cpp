#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/random.h"
#include "infer/translate.h"
#include "train/engine/precision.h"

namespace tightloop::cli {

namespace {

struct BenchTranslateArguments {
  std::string recipe, source;
  ModelChoice run;
  int64_t sentences = 256, source_length = 16, length = 30, batch_tokens = 0, rounds = 3;
  DecodeConfig decode{.beam = 5};
  bool json = false;
};

/// Decodes everything once and gives the number of tokens that it made.
using Decode = std::function<size_t()>;

void time_decoding(const BenchTranslateArguments& options, Device& device, size_t sentences,
                   const Decode& decode) {
  double best = 0;
  size_t made = 0;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    device.synchronize();
    const auto began = std::chrono::steady_clock::now();
    made = decode();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (round > 0) best = std::max(best, static_cast<double>(sentences) / seconds);
  }
  const double length = static_cast<double>(made) / static_cast<double>(sentences);
  const nlohmann::json result{{"sentences_s", best},
                              {"beam", options.decode.beam},
                              {"tokens_a_sentence", length},
                              {"sentences", sentences}};
  const std::string text = fmt::format("{:.1f} sentences/s with a beam of {}, {:.1f} tokens each", best,
                                       options.decode.beam, length);
  std::fputs(((options.json ? result.dump() : text) + "\n").c_str(), stdout);
}

/// The lines of a file by a trained model: tokenizing and putting words together count too.
void time_run(const BenchTranslateArguments& options) {
  auto run = load_translator(options.run.folder(), options.run.device, {}, options.run.precision);
  std::vector<std::string> lines;
  std::istringstream text(read_file(options.source));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  if (lines.empty()) throw data_error("{} has no lines.", options.source);
  const TranslateOptions how{.decode = options.decode, .batch_tokens = options.batch_tokens};
  time_decoding(options, device(options.run.device), lines.size(), [&] {
    size_t made = 0;
    for (const auto& found : translate(*run.model, run.tokenizers, lines, how)) made += found.front().tokens;
    return made;
  });
}

/// Random sentences by a model of random weights.
void time_recipe(const BenchTranslateArguments& options, const Settings& settings) {
  Recipe recipe = read_recipe(options.recipe, settings);
  if (recipe.model.source_vocab_size == 0) recipe.model.source_vocab_size = recipe.model.vocab_size;
  recipe.model.resolve(0, options.source_length);
  Device& device = training_device(recipe.train, -1);
  Seq2Seq model(recipe.model, recipe.train.seed);
  model.parameters().to(at::Device(device.name()), compute_dtype(recipe.train.precision, device));
  Random random(1);
  std::vector<std::vector<int32_t>> sources(options.sentences);
  for (auto& source : sources) {
    source.push_back(2);
    for (int64_t i = 2; i < options.source_length; ++i)
      source.push_back(static_cast<int32_t>(4 + random.below(recipe.model.source_vocab_size - 4)));
    source.push_back(3);
  }
  DecodeConfig how = options.decode;
  how.extra_tokens = options.length - options.source_length;
  const TargetTokens tokens{.begin = 2, .end = 3};
  time_decoding(options, device, sources.size(), [&] {
    size_t made = 0;
    for (const auto& one : decode_all(model, sources, tokens, how, options.batch_tokens))
      made += one.front().ids.size();
    return made;
  });
}

void bench_translate(const BenchTranslateArguments& options, const Settings& settings) {
  c10::NoGradGuard no_grad;
  if (options.recipe.empty() == options.source.empty())
    throw usage_error(
        "Name either a recipe, or a file of sentences with --source (and the model that translates with "
        "--run).");
  options.source.empty() ? time_recipe(options, settings) : time_run(options);
}

}  // namespace

void add_bench_translate(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<BenchTranslateArguments>();
  auto* verb =
      bench.add_subcommand("translate", "Time decoding by a trained model, or by one of random weights");
  verb->add_option("RECIPE", options->recipe,
                   "Random weights: a YAML file of settings, with model.vocab_size");
  options->run.add_to(*verb);
  verb->add_option("--source", options->source, "The sentences that a trained model translates, one a line");
  verb->add_option("--sentences", options->sentences, "Random ones to translate")->check(at_least(1));
  verb->add_option("--source-length", options->source_length, "Tokens of each of them")->check(at_least(3));
  verb->add_option("--length", options->length, "Tokens that their translations have at most")
      ->check(at_least(3));
  verb->add_option("--beam", options->decode.beam, "Beam size")->check(at_least(1));
  verb->add_option("--batch-tokens", options->batch_tokens, "As of 'translate'")->check(at_least(0));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "Examples:\n"
      "  tightloop bench translate --run runs/translate-multi30k --source test.en --beam 5\n"
      "  tightloop bench translate configs/translate-base.yaml --beam 5");
  verb->callback([=] { bench_translate(*options, settings); });
}

}  // namespace tightloop::cli
