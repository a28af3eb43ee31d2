#include <fmt/format.h>

#include <CLI/App.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/allocations.h"
#include "core/interrupt.h"
#include "data/dataset.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/loading.h"

namespace tightloop::cli {

namespace {

struct BenchLoaderArguments {
  std::string file;
  int threads = 2;
  int64_t batches = 0;
  bool json = false;
};

struct LoaderPass {
  double seconds = 0;
  int64_t batches = 0, rows = 0, tokens = 0;
  uint64_t allocations = 0;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t tokens_in(const Batch& batch) { return batch.rows * batch.length - batch.padding; }
int64_t tokens_in(const PairBatch& batch) {
  return batch.rows * (batch.source_length + batch.target_length) - batch.padding;
}

template <class AnyLoader>
LoaderPass take(AnyLoader& loader, int64_t batches) {
  LoaderPass pass;
  const AllocationCount allocations;
  const auto start = Clock::now();
  for (; pass.batches < batches; ++pass.batches) {
    throw_if_interrupted();
    const auto& batch = loader.next();
    pass.rows += batch.rows;
    pass.tokens += tokens_in(batch);
  }
  pass.seconds = seconds_since(start);
  pass.allocations = allocations.count();
  return pass;
}

/// A first pass, whose time goes on from `before` seconds of reading and tokenizing, then one from what is
/// ready.
template <class AnyLoader>
void measure(AnyLoader& loader, const BenchLoaderArguments& options, Clock::time_point start) {
  const int64_t batches = options.batches > 0 ? options.batches : loader.batches();
  const LoaderPass first = take(loader, batches);
  const double whole = seconds_since(start);
  const LoaderPass steady = take(loader, batches);
  const auto rate = [](int64_t count, double seconds) { return static_cast<double>(count) / seconds; };
  const double allocations =
      rate(static_cast<int64_t>(steady.allocations), static_cast<double>(steady.batches));
  const nlohmann::json json{{"samples_s", rate(first.rows, whole)},
                            {"tokens_s", rate(first.tokens, whole)},
                            {"steady_samples_s", rate(steady.rows, steady.seconds)},
                            {"steady_tokens_s", rate(steady.tokens, steady.seconds)},
                            {"allocations_per_batch", allocations},
                            {"padding", loader.plan().padding_share()},
                            {"batches", batches},
                            {"threads", options.threads}};
  const std::string text = fmt::format(
      "from the files: {:.0f} samples/s, {:.2f} M tokens/s; from there: {:.0f} samples/s, {:.1f} M tokens/s, "
      "{:.2f} "
      "allocations a batch; {:.2f} % padding",
      rate(first.rows, whole), rate(first.tokens, whole) / 1e6, rate(steady.rows, steady.seconds),
      rate(steady.tokens, steady.seconds) / 1e6, allocations, 100 * loader.plan().padding_share());
  std::fputs(((options.json ? json.dump() : text) + "\n").c_str(), stdout);
}

void bench_loader(const BenchLoaderArguments& options, const Settings& settings) {
  Recipe recipe = read_recipe(options.file, settings);
  recipe.data.tokenizer_threads = options.threads;
  const PairTokenizers tokenizers = make_tokenizers(recipe);
  const auto start = Clock::now();
  const auto dataset =
      load_dataset(recipe.data, recipe.tasks, *tokenizers.source, recipe.chat, tokenizers.own_target.get());
  if (loads_pairs(recipe)) {
    PairOptions loading = pair_loading_of(recipe);
    loading.threads = options.threads;
    PairLoader loader(dataset.train, loading);
    return measure(loader, options, start);
  }
  LoaderOptions loading = loading_of(recipe, *tokenizers.source);
  loading.threads = options.threads;
  Loader loader(dataset.train, loading);
  measure(loader, options, start);
}

}  // namespace

void add_bench_loader(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<BenchLoaderArguments>();
  auto* verb = bench.add_subcommand("loader", "Time the way from a recipe's files to batches");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--threads", options->threads, "Threads that tokenize and load")->check(at_least(0));
  verb->add_option("--batches", options->batches, "Batches to take; 0: one pass over the data")
      ->check(at_least(0));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "samples_s and tokens_s count one pass from the files, reading and tokenizing included; the steady "
      "ones a pass\n"
      "from what is then in memory or mapped.\n"
      "Example: tightloop bench loader configs/quickstart.yaml --threads 2 --json");
  verb->callback([=] { bench_loader(*options, settings); });
}

}  // namespace tightloop::cli
