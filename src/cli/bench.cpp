#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/allocations.h"
#include "core/files.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "tokenizer/bench.h"
#include "train/run_tokenizer.h"
#include "train/trainer.h"

namespace tightloop::cli {

namespace {

struct StepOptions {
  std::string file;
  int64_t steps = 20;
  bool json = false;
};

struct TokenizerOptions {
  std::string tokenizer, input;
  int threads = 1;
  double megabytes = 8;
  bool json = false;
};

struct LoaderBenchOptions {
  std::string file;
  int threads = 2;
  int64_t batches = 2000;
  bool json = false;
};

/// A folder for a run that nobody keeps.
struct Scratch {
  fs::path path = fs::temp_directory_path() / fmt::format("tightloop-bench-{}", ::getpid());
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void print(bool as_json, const nlohmann::json& json, const std::string& text) {
  std::fputs(((as_json ? json.dump() : text) + "\n").c_str(), stdout);
}

void bench_step(const StepOptions& options, const Settings& settings) {
  const Scratch scratch;
  Trainer trainer(read_recipe(options.file, settings), RunFolder::create(scratch.path, false));
  auto times = trainer.time_steps(options.steps);
  auto& ms = times.milliseconds;
  std::ranges::sort(ms);
  print(
      options.json,
      {{"ms", ms[ms.size() / 2]},
       {"ms_min", ms.front()},
       {"ms_max", ms.back()},
       {"tokens_s", times.tokens_per_second},
       {"data_wait", times.data_wait_share},
       {"steps", options.steps}},
      fmt::format("{} steps: median {:.2f} ms ({:.2f} to {:.2f}), {:.0f} tokens/s, waiting for data {:.2f} %",
                  options.steps, ms[ms.size() / 2], ms.front(), ms.back(), times.tokens_per_second,
                  100 * times.data_wait_share));
}

void bench_tokenizer(const TokenizerOptions& options) {
  const auto tokenizer = load_tokenizer(options.tokenizer);
  const auto speed =
      measure_tokenizer(*tokenizer, read_file(options.input), options.threads, options.megabytes);
  print(options.json,
        {{"mb_s", speed.mb_s},
         {"tokens_s", speed.tokens_s},
         {"threads", options.threads},
         {"bytes", speed.bytes},
         {"tokens", speed.tokens},
         {"documents", speed.documents}},
        fmt::format("{:.1f} MB/s, {:.2f} M tokens/s with {} threads ({} documents)", speed.mb_s,
                    speed.tokens_s / 1e6, options.threads, speed.documents));
}

void bench_loader(const LoaderBenchOptions& options, const Settings& settings) {
  const Recipe recipe = read_recipe(options.file, settings);
  const auto tokenizer = make_tokenizer(recipe);
  const auto dataset = load_dataset(recipe.data, recipe.tasks, *tokenizer, recipe.chat);
  LoaderOptions loading = loader_options(recipe.data);
  loading.rows = recipe.train.micro_batch;
  loading.seed = recipe.train.seed;
  loading.pad_id = tokenizer->end_of_text();
  loading.threads = options.threads;
  Loader loader(dataset.train, loading);
  for (int i = 0; i < 16; ++i) loader.next();  // every buffer of the ring has been used
  int64_t rows = 0, tokens = 0;
  const AllocationCount allocations;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.batches; ++i) {
    const Batch& batch = loader.next();
    rows += batch.rows;
    tokens += batch.rows * batch.length - batch.padding;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double each = static_cast<double>(allocations.count()) / static_cast<double>(options.batches);
  print(options.json,
        {{"samples_s", static_cast<double>(rows) / seconds},
         {"tokens_s", static_cast<double>(tokens) / seconds},
         {"allocations_per_batch", each},
         {"padding", loader.plan().padding_share()},
         {"threads", options.threads}},
        fmt::format("{:.0f} samples/s, {:.1f} M tokens/s, {:.2f} allocations a batch, {:.2f} % padding",
                    static_cast<double>(rows) / seconds, static_cast<double>(tokens) / seconds / 1e6, each,
                    100 * loader.plan().padding_share()));
}

}  // namespace

void add_bench(CLI::App& app, const Settings& settings) {
  auto* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);

  auto steps = std::make_shared<StepOptions>();
  auto* step = bench->add_subcommand("step", "Time training steps of a recipe");
  step->add_option("RECIPE", steps->file, "A YAML file of settings")->required();
  step->add_option("--steps", steps->steps, "Steps to time")->check(CLI::PositiveNumber);
  step->add_flag("--json", steps->json, "For programs");
  step->footer("Example: tightloop bench step configs/quickstart.yaml --steps 50 --json");
  step->callback([=] { bench_step(*steps, settings); });

  auto encoding = std::make_shared<TokenizerOptions>();
  auto* tokenizer = bench->add_subcommand("tokenizer", "Time encoding of a text, cut into documents of 4 KB");
  tokenizer->add_option("--tokenizer", encoding->tokenizer, "A folder or file of a tokenizer")->required();
  tokenizer->add_option("--input", encoding->input, "A text file")->required();
  tokenizer->add_option("--threads", encoding->threads, "Threads")->check(CLI::PositiveNumber);
  tokenizer->add_option("--megabytes", encoding->megabytes, "Length of a round")->check(CLI::PositiveNumber);
  tokenizer->add_flag("--json", encoding->json, "For programs");
  tokenizer->footer("Example: tightloop bench tokenizer --tokenizer gpt2 --input my.txt --threads 2");
  tokenizer->callback([=] { bench_tokenizer(*encoding); });

  auto loading = std::make_shared<LoaderBenchOptions>();
  auto* loader = bench->add_subcommand("loader", "Time the loader of a recipe");
  loader->add_option("RECIPE", loading->file, "A YAML file of settings")->required();
  loader->add_option("--threads", loading->threads, "Loader threads")->check(CLI::NonNegativeNumber);
  loader->add_option("--batches", loading->batches, "Batches to take")->check(CLI::PositiveNumber);
  loader->add_flag("--json", loading->json, "For programs");
  loader->footer("Example: tightloop bench loader configs/quickstart.yaml --threads 2 --json");
  loader->callback([=] { bench_loader(*loading, settings); });
}

}  // namespace tightloop::cli
