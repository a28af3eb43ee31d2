#include "infer/generate.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "cli/at_least.h"
#include "cli/verbs.h"
#include "core/interrupt.h"
#include "infer/loaded_run.h"

namespace tightloop::cli {

namespace {

struct Options {
  std::string run, device = "auto", prompt;
  SamplingConfig sampling;
};

void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void answer(const Options& options) {
  auto run = load_run(chosen_run(options.run), options.device);
  std::string prompt = options.prompt;
  if (prompt.empty() && !::isatty(STDIN_FILENO)) {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    while (prompt.ends_with('\n')) prompt.pop_back();
  }
  auto ids = run.tokenizer->encode(prompt);
  if (ids.empty()) ids.push_back(run.tokenizer->end_of_text());  // nothing asked: a document from its start
  catch_interrupts();
  print_text(prompt);
  // Bytes are printed as tokens arrive; a character cut in two is whole again with the next one.
  generate(*run.model, {ids}, run.tokenizer->end_of_text(), options.sampling,
           [&](size_t, int32_t id) { print_text(run.tokenizer->decode(std::vector<int32_t>{id})); });
  print_text("\n");
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("generate", "Let a trained model continue a text");
  verb->add_option("--run", options->run, "Folder of the run (default: the newest in runs/)");
  verb->add_option("--prompt", options->prompt, "The text to continue (default: standard input)");
  verb->add_option("--device", options->device, "auto, cpu or cuda:N");
  verb->add_option("--max-tokens", options->sampling.max_tokens, "Most tokens to make")->check(at_least(1));
  verb->add_option("--temperature", options->sampling.temperature, "0: always the likeliest token")
      ->check(at_least(0));
  verb->add_option("--top-k", options->sampling.top_k, "Choose among this many likeliest tokens; 0: all")
      ->check(at_least(0));
  verb->add_option("--top-p", options->sampling.top_p,
                   "Choose among the likeliest that make up this probability")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--seed", options->sampling.seed, "The same seed gives the same text");
  verb->footer(
      "Example: tightloop generate --run runs/quickstart --prompt 'reverse stone =' --temperature 0");
  verb->callback([=] { answer(*options); });
}

}  // namespace tightloop::cli
