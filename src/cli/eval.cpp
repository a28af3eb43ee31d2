#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/report.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "data/dataset.h"
#include "infer/exact_match.h"
#include "infer/loaded_run.h"
#include "train/loading.h"
#include "train/loss.h"
#include "train/run_folder.h"

namespace tightloop::cli {

namespace {

struct Options {
  std::string run, device = "auto";
  bool json = false;
};

void evaluate(const Options& options) {
  const std::string folder = chosen_run(options.run);
  auto run = load_run(folder, options.device);
  const auto dataset = load_dataset(run.recipe.data, run.recipe.tasks, *run.tokenizer, run.recipe.chat,
                                    nullptr, RunFolder(folder).index());
  if (dataset.val->size() == 0)
    throw data_error("the run '{}' holds out no data; see data.val and data.holdout.", folder);
  LoaderOptions loading = loading_of(run.recipe, *run.tokenizer);
  loading.shuffle = false;
  Loader loader(dataset.val, loading);
  const auto loss = held_out_loss(*run.model, loader, /*limit=*/0);
  nlohmann::json json{{"run", folder},
                      {"step", run.step},
                      {"loss", loss.mean()},
                      {"perplexity", std::exp(loss.mean())},
                      {"tokens", loss.tokens}};
  std::string text = fmt::format("{} at step {}\nheld-out loss {:.4f}, perplexity {:.3f}, over {} tokens\n",
                                 folder, run.step, loss.mean(), std::exp(loss.mean()), loss.tokens);
  if (run.recipe.data.source == "tasks") {
    const auto match = exact_match(*run.model, *run.tokenizer, held_out_questions(run.recipe.tasks));
    json.update(to_json(match));
    text += to_text(match);
  }
  std::fputs((options.json ? json.dump(2) + "\n" : text).c_str(), stdout);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("eval", "Measure a run on its held-out data");
  verb->add_option("--run", options->run, "Folder of the run (default: the newest in runs/)");
  verb->add_option("--device", options->device, "auto, cpu or cuda:N");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop eval --run runs/quickstart --json");
  verb->callback([=] { evaluate(*options); });
}

}  // namespace tightloop::cli
