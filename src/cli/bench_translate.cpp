#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/at_least.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/random.h"
#include "infer/beam.h"
#include "train/precision.h"

namespace tightloop::cli {

namespace {

struct Options {
  std::string file;
  int64_t sentences = 256, source_length = 16, length = 30, beam = 5, batch_tokens = 16384, rounds = 3;
  bool json = false;
};

void bench_translate(const Options& options, const Settings& settings) {
  c10::NoGradGuard no_grad;
  Recipe recipe = read_recipe(options.file, settings);
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
  DecodeConfig how;
  how.beam = options.beam, how.extra_tokens = options.length - options.source_length;
  const TargetTokens tokens{.begin = 2, .end = 3};
  double best = 0;
  size_t made = 0;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    device.synchronize();
    const auto began = std::chrono::steady_clock::now();
    const auto found = decode_all(model, sources, tokens, how, options.batch_tokens);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (round > 0) best = std::max(best, static_cast<double>(options.sentences) / seconds);
    made = 0;
    for (const auto& one : found) made += one.front().ids.size();
  }
  const double length = static_cast<double>(made) / static_cast<double>(options.sentences);
  const nlohmann::json result{{"sentences_s", best},
                              {"beam", options.beam},
                              {"tokens_a_sentence", length},
                              {"sentences", options.sentences},
                              {"parameters", model.parameters().count()}};
  const std::string text =
      fmt::format("{:.1f} sentences/s with a beam of {}, {:.1f} tokens each", best, options.beam, length);
  std::fputs(((options.json ? result.dump() : text) + "\n").c_str(), stdout);
}

}  // namespace

void add_bench_translate(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<Options>();
  auto* verb = bench.add_subcommand("translate", "Time decoding with a model of random weights");
  verb->add_option("RECIPE", options->file, "A YAML file of settings, with model.vocab_size")->required();
  verb->add_option("--sentences", options->sentences, "Sentences to translate")->check(at_least(1));
  verb->add_option("--source-length", options->source_length, "Tokens of each")->check(at_least(3));
  verb->add_option("--length", options->length, "Tokens that a translation has at most")->check(at_least(3));
  verb->add_option("--beam", options->beam, "Translations followed at once")->check(at_least(1));
  verb->add_option("--batch-tokens", options->batch_tokens, "As of 'translate'")->check(at_least(1));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench translate configs/translate-base.yaml --beam 5");
  verb->callback([=] { bench_translate(*options, settings); });
}

}  // namespace tightloop::cli
