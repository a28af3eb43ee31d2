#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/fit/training_memory.h"
#include "cli/main_settings.h"
#include "cli/model_choice.h"
#include "cli/model_recipe.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "model/model_size.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

namespace {

constexpr int64_t kAssumedVocabulary = 32768;

struct ModelArguments {
  std::string what, run;
  bool json = false;
};

/// A preset's model, a recipe's as it would be trained, or one that is there.
Recipe recipe_of(const std::string& what, const Settings& settings) {
  std::vector<std::string> names;
  for (const auto& preset : model_presets()) names.push_back(preset.name);
  const bool preset = std::ranges::count(names, what) > 0;
  if (is_file(what) || (!preset && names_model(what))) return recipe_or_model(what, settings);
  if (!preset) {
    const auto guess = nearest(what, names);
    throw usage_error(
        "'{}' is neither a preset, nor a recipe's file, nor a folder with a model.{} Presets: {}.", what,
        guess ? fmt::format(" Did you mean '{}'?", *guess) : "", fmt::join(names, ", "));
  }
  Recipe recipe;
  Config config = recipe.bind();
  config.set("model.preset", what);
  config.apply(settings);
  return recipe;
}

std::string count(double value) {
  if (value >= 1e9) return fmt::format("{:.2f} billion", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f} million", value / 1e6);
  return fmt::format("{:.0f}", value);
}

void show(const ModelArguments& options, const Settings& settings) {
  if (options.what.empty() && options.run.empty())
    throw usage_error("model show: name a preset, a recipe's file or a model, or a run with --run.");
  Recipe recipe = options.run.empty() ? recipe_of(options.what, settings)
                                      : recipe_or_model(existing_run(options.run), settings);
  ModelConfig& model = recipe.model;
  const bool assumed = model.vocab_size == 0;
  if (assumed) model.vocab_size = kAssumedVocabulary;
  model.resolve(0, recipe.data.seq_len);

  const ModelSize size = model_size(model);
  const int64_t context = model.context, rows = recipe.train.micro_batch;
  const double flops = flops_per_token(model, context);
  const TrainingMemory training = training_memory(recipe);
  const MemoryPlan memory = training.planner.plan(training.written);
  if (options.json) {
    const nlohmann::ordered_json json{{"family", model.family},
                                      {"layers", model.layers},
                                      {"width", model.width},
                                      {"heads", model.heads},
                                      {"kv_heads", model.kv_heads},
                                      {"head_size", model.head_size},
                                      {"vocab_size", model.vocab_size},
                                      {"context", context},
                                      {"parameters",
                                       {{"total", size.total},
                                        {"embedding", size.embedding},
                                        {"active", size.active},
                                        {"matmul", size.matmul}}},
                                      {"flops_per_token", flops},
                                      {"precision", training.precision},
                                      {"training_bytes",
                                       {{"weights", memory.weights},
                                        {"masters", memory.masters},
                                        {"moments", memory.moments},
                                        {"gradients", memory.gradients},
                                        {"activations", memory.activations},
                                        {"working", memory.working},
                                        {"total", memory.total()}}}};
    std::puts(json.dump(2).c_str());
    return;
  }
  std::string text = fmt::format("{}: {}, width {}, {} of {} ({} for keys and values), ", model.family,
                                 counted(model.layers, "layer"), model.width, counted(model.heads, "head"),
                                 model.head_size, model.kv_heads);
  text += model.has_experts() ? fmt::format("{} of {} experts of {}\n", model.experts_per_token,
                                            model.experts, model.expert_ffn)
                              : fmt::format("feed-forward {}\n", model.ffn);
  text += fmt::format("vocabulary {}{}, context {}\n", model.vocab_size,
                      assumed ? " (assumed: the tokenizer decides)" : "", context);
  text += fmt::format("parameters      {} ({})\n", count(static_cast<double>(size.total)), size.total);
  text += fmt::format("  embeddings    {}\n", count(static_cast<double>(size.embedding)));
  if (size.active != size.total)
    text += fmt::format("  met by a token {}\n", count(static_cast<double>(size.active)));
  text += fmt::format("training        {:.3g} FLOPs a token at {} positions\n", flops, context);
  text += fmt::format("memory, {:<8}about {} with micro-batches of {} x {}\n", training.precision,
                      memory_text(memory.total()), rows, recipe.data.seq_len);
  text += fmt::format("  weights {}, fp32 master weights {}, optimizer moments {}, gradients {}\n",
                      memory_text(memory.weights), memory_text(memory.masters), memory_text(memory.moments),
                      memory_text(memory.gradients));
  text += fmt::format("  activations {}, working memory {}\n", memory_text(memory.activations),
                      memory_text(memory.working));
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_model(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<ModelArguments>();
  auto* verb = app.add_subcommand("model", "Look at models");
  verb->require_subcommand(1);
  verb->footer("Example: tightloop model show gpt2-124m");
  auto* show_verb =
      verb->add_subcommand("show", "Parameters, FLOPs and memory of a preset, a recipe or a trained model");
  auto* what = show_verb->add_option("WHAT", options->what,
                                     "A preset's name, a recipe's file; or as --run (one of the two)");
  show_verb
      ->add_option("--run,--model", options->run,
                   "A run, a checkpoint (RUN@best), a Hugging Face folder or a GGUF file")
      ->excludes(what);
  show_verb->add_flag("--json", options->json, "For programs");
  show_verb->footer(std::string(kTakesSettings) +
                    "Example: tightloop model show nanochat-d12 --train.micro_batch 32");
  show_verb->callback([=] { show(*options, settings); });
}

}  // namespace tightloop::cli
