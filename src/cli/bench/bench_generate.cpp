#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/verbs.h"
#include "core/interrupt.h"
#include "infer/generate.h"

namespace tightloop::cli {

namespace {

struct BenchGenerateArguments {
  ModelChoice model;
  int64_t prompt_tokens = 64, new_tokens = 128, batch = 1, rounds = 1;
  bool json = false;
};

void measure(const BenchGenerateArguments& options) {
  auto run = options.model.load();
  std::vector<Prompt> prompts(static_cast<size_t>(options.batch));
  for (auto& prompt : prompts) {
    for (int64_t i = 0; i < options.prompt_tokens; ++i)
      prompt.ids.push_back(static_cast<int32_t>(i * 37 % run.recipe.model.vocab_size));
  }
  GenerateOptions generation;
  generation.sampling.temperature = 0, generation.sampling.max_tokens = options.new_tokens;
  generate(*run.model, prompts, generation);  // warm-up
  std::vector<double> seconds;
  for (int64_t round = 0; round < options.rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    generate(*run.model, prompts, generation);
    throw_if_interrupted();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  const double speed = static_cast<double>(options.batch * options.new_tokens) / median;
  const nlohmann::json json{{"seconds", median},
                            {"tokens_s", speed},
                            {"batch", options.batch},
                            {"prompt_tokens", options.prompt_tokens},
                            {"new_tokens", options.new_tokens}};
  const std::string text = fmt::format("{} x {} tokens after {}: {:.3f} s, {:.1f} tokens/s", options.batch,
                                       options.new_tokens, options.prompt_tokens, median, speed);
  std::fputs(((options.json ? json.dump() : text) + "\n").c_str(), stdout);
}

}  // namespace

void add_bench_generate(CLI::App& bench) {
  auto options = std::make_shared<BenchGenerateArguments>();
  auto* verb = bench.add_subcommand("generate", "Time generation, greedy, the prompt included");
  options->model.add_to(*verb);
  verb->add_option("--prompt-tokens", options->prompt_tokens, "Length of the prompt")->check(at_least(1));
  verb->add_option("--new-tokens", options->new_tokens, "Tokens to generate")->check(at_least(1));
  verb->add_option("--batch", options->batch, "Texts at once")->check(at_least(1));
  verb->add_option("--rounds", options->rounds, "The median of this many counts")->check(at_least(1));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench generate --model runs/mine --new-tokens 256");
  verb->callback([=] { measure(*options); });
}

}  // namespace tightloop::cli
