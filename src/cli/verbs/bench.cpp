#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/verbs.h"
#include "core/files.h"
#include "tokenizer/bench.h"

namespace tightloop::cli {

namespace {

struct TokenizerOptions {
  std::string tokenizer, input;
  int threads = 1;
  double megabytes = 8;
  bool whole = false, json = false;
};

void print(bool as_json, const nlohmann::json& json, const std::string& text) {
  std::fputs(((as_json ? json.dump() : text) + "\n").c_str(), stdout);
}

void bench_tokenizer(const TokenizerOptions& options) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  const auto speed = measure_tokenizer(*tokenizer, read_file(options.input), options.threads,
                                       options.megabytes, options.whole);
  print(options.json,
        {{"mb_s", speed.mb_s},
         {"tokens_s", speed.tokens_s},
         {"threads", options.threads},
         {"seconds", speed.seconds},
         {"bytes", speed.bytes},
         {"tokens", speed.tokens},
         {"documents", speed.documents}},
        fmt::format("{:.1f} MB/s, {:.2f} M tokens/s with {} threads ({} documents)", speed.mb_s,
                    speed.tokens_s / 1e6, options.threads, speed.documents));
}

}  // namespace

void add_bench(CLI::App& app, const Settings& settings) {
  auto* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);
  bench->footer("Example: tightloop bench step configs/quickstart.yaml --steps 50");

  add_bench_step(*bench, settings);
  add_bench_update(*bench, settings);
  add_bench_ops(*bench);
  add_bench_translate(*bench, settings);
  add_bench_ablation(*bench, settings);

  auto encoding = std::make_shared<TokenizerOptions>();
  auto* tokenizer = bench->add_subcommand("tokenizer", "Time encoding of a text, cut into documents of 4 KB");
  tokenizer->add_option("--tokenizer", encoding->tokenizer, "A folder or file of a tokenizer")->required();
  tokenizer->add_option("--input", encoding->input, "A text file")->required();
  tokenizer->add_option("--threads", encoding->threads, "Threads")->check(at_least(1));
  tokenizer->add_option("--megabytes", encoding->megabytes, "Length of a round")->check(at_least(1e-6));
  tokenizer->add_flag("--whole", encoding->whole, "The input as one document");
  tokenizer->add_flag("--json", encoding->json, "For programs");
  tokenizer->footer("Example: tightloop bench tokenizer --tokenizer gpt2 --input my.txt --threads 2");
  tokenizer->callback([=] { bench_tokenizer(*encoding); });

  add_bench_loader(*bench, settings);
  add_bench_generate(*bench);
  add_bench_chat(*bench);
}

}  // namespace tightloop::cli
