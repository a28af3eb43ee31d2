#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "data/batch/order_hash.h"
#include "data/dataset.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/loading.h"

namespace tightloop::cli {

namespace {

struct DataOrderArguments {
  std::string file;
  int64_t batches = 1000, from = 0, every = 100, rank = 0, world = 1;
  bool json = false;
};

template <class AnyLoader>
void print_order(AnyLoader& loader, const DataOrderArguments& options) {
  nlohmann::json parts = nlohmann::json::array();
  uint64_t whole = 0, part = 0;
  for (int64_t taken = 1; taken <= options.batches; ++taken) {
    throw_if_interrupted();
    const auto& batch = loader.next();
    part += order_hash(batch, batch.index * options.world + options.rank);
    if (taken % options.every != 0 && taken != options.batches) continue;
    parts.push_back(hex64(part));
    whole += part;
    part = 0;
  }
  if (options.json) {
    const nlohmann::json json{{"from", options.from},
                              {"batches", options.batches},
                              {"every", options.every},
                              {"order_hash", hex64(whole)},
                              {"parts", parts}};
    std::fputs((json.dump() + "\n").c_str(), stdout);
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i)
    put(fmt::format("from batch {}: {}\n", options.from + static_cast<int64_t>(i) * options.every,
                    parts[i].get<std::string>()));
  put(fmt::format("all {} batches: {}\n", options.batches, hex64(whole)));
}

void order(const DataOrderArguments& options, const Settings& settings) {
  if (options.rank >= options.world)
    throw usage_error("--rank {} is not one of --world {}: ranks count from 0.", options.rank, options.world);
  const Recipe recipe = read_recipe(options.file, settings);
  const PairTokenizers tokenizers = make_tokenizers(recipe);
  const auto dataset =
      load_dataset(recipe.data, recipe.tasks, *tokenizers.source, recipe.chat, tokenizers.own_target.get());
  if (loads_pairs(recipe)) {
    PairOptions loading = pair_loading_of(recipe);
    loading.rank = options.rank, loading.world = options.world, loading.first_batch = options.from;
    PairLoader loader(dataset.train, loading);
    return print_order(loader, options);
  }
  LoaderOptions loading = loading_of(recipe, *tokenizers.source);
  loading.rank = options.rank, loading.world = options.world, loading.first_batch = options.from;
  Loader loader(dataset.train, loading);
  print_order(loader, options);
}

}  // namespace

void add_data_order(CLI::App& data, const Settings& settings) {
  auto options = std::make_shared<DataOrderArguments>();
  auto* verb = data.add_subcommand("order", "Hash the batches in their order, to compare runs or machines");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--batches", options->batches, "How many")->check(at_least(1));
  verb->add_option("--from", options->from, "The first one")->check(at_least(0));
  verb->add_option("--every", options->every, "Batches that one hash covers")->check(at_least(1));
  verb->add_option("--rank", options->rank, "Which of the readers")->check(at_least(0));
  verb->add_option("--world", options->world, "Number of readers")->check(at_least(1));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "The hashes do not depend on threads or on where a run was stopped, and those of readers that share\n"
      "the work (with as many rows each as make one reader's batch) add up, modulo 2^64, to that reader's.\n"
      "Example: tightloop data order configs/quickstart.yaml --batches 500 --from 500 --data.num_workers 8");
  verb->callback([=] { order(*options, settings); });
}

}  // namespace tightloop::cli
