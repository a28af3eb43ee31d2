#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/fit/training_memory.h"
#include "cli/fit/world_fit.h"
#include "cli/main_settings.h"
#include "cli/model_recipe.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/terminal/terminal.h"
#include "model/model_size.h"
#include "train/run/run_length.h"
#include "train/run/step_size.h"

namespace tightloop::cli {

namespace {

using Json = nlohmann::ordered_json;

struct FitArguments {
  std::string config;
  double memory = 0;  // GiB; 0: the device's
  bool json = false;
  WorldQuestion world{};
};

Json json_of(const MemoryPlan& plan) {
  const auto whole = [](double bytes) { return static_cast<int64_t>(bytes); };
  return {{"weights", whole(plan.weights)},
          {"masters", whole(plan.masters)},
          {"moments", whole(plan.moments)},
          {"gradients", whole(plan.gradients)},
          {"activations", whole(plan.activations)},
          {"working", whole(plan.working)},
          {"total", whole(plan.total())}};
}

Json json_of(const MemoryChoice& choice, const ModelConfig& model) {
  return {{"train.micro_batch", choice.micro_batch},
          {"train.accumulate", choice.accumulate},
          {"train.fused_head", choice.chunked ? "on" : "off"},
          {"model.gradient_checkpointing", checkpointing_text(choice.recomputed, model)}};
}

struct FitQuestion {
  Recipe recipe;
  TrainingMemory memory;
};

FitQuestion question(const FitArguments& options, const Settings& settings) {
  Recipe recipe = recipe_or_model(options.config, settings);
  if (recipe.model.translates())
    throw usage_error(
        "fit knows rows of text; how large batches of pairs are is for data.batch_tokens to say.");
  const int64_t world = std::max<int64_t>(1, options.world.world);
  // A step that was planned is shared by so many processes, as in training.
  if (options.world.asked() && recipe.expected_tokens > 0)
    fit_micro_batch(recipe.train, recipe.data.seq_len, world);
  if (options.world.asked()) resolve_accumulate(recipe.train, recipe.data.seq_len, world);
  TrainingMemory memory = training_memory(recipe, options.memory, world);
  return {std::move(recipe), std::move(memory)};
}

std::string logits_text(bool chunked) { return chunked ? "in chunks" : "whole"; }

/// Smaller micro-batches, with logits as the recipe has them where it fits, and else in chunks.
std::string table(const FitQuestion& asked, bool chunked, double budget) {
  const auto& model = asked.recipe.model;
  std::string text =
      fmt::format("{:>12} {:>12} {:>12}   layers with checkpointing, so that it fits; logits {}\n",
                  "micro-batch", "none", "all", logits_text(chunked));
  for (MemoryChoice choice = asked.memory.written;; choice.micro_batch /= 2) {
    choice.accumulate = std::max<int64_t>(
        1, asked.recipe.train.micro_batch * asked.recipe.train.accumulate / choice.micro_batch);
    choice.chunked = chunked;
    const auto bytes = [&](int64_t blocks) {
      choice.recomputed = blocks;
      return asked.memory.planner.plan(choice).total();
    };
    const auto found = asked.memory.planner.with_checkpointing(choice, budget);
    text += fmt::format("{:>12} {:>12} {:>12}   {}\n", choice.micro_batch, memory_text(bytes(0)),
                        memory_text(bytes(model.layers)),
                        found ? checkpointing_text(found->recomputed, model) : "does not fit");
    if (choice.micro_batch == 1) return text;
  }
}

void fit(const FitArguments& options, const Settings& settings) {
  const FitQuestion asked = question(options, settings);
  const auto& model = asked.recipe.model;
  const double budget = kUsableMemory * asked.memory.memory;
  const MemoryChoice choice = asked.memory.written;
  const MemoryPlan plan = asked.memory.planner.plan(choice);
  const bool fits = plan.total() <= budget;
  const auto advice = asked.memory.planner.advice(budget);
  std::optional<WorldPrediction> together;
  if (options.world.asked()) together = predict(options.world, asked.recipe, asked.memory);

  if (options.json) {
    Json json{{"parameters", model_size(model).total},
              {"memory_bytes", static_cast<int64_t>(asked.memory.memory)},
              {"usable_bytes", static_cast<int64_t>(budget)},
              {"written", json_of(choice, model)},
              {"predicted_bytes", json_of(plan)},
              {"fits", fits},
              {"advice", nullptr}};
    if (advice) {
      json["advice"] = json_of(*advice, model);
      json["advice_bytes"] = json_of(asked.memory.planner.plan(*advice));
    }
    if (together) json["together"] = json_of(*together, asked.recipe);
    std::puts(json.dump(2).c_str());
    return;
  }
  std::string text = fmt::format("{} parameters, vocabulary {}.\n",
                                 human_count(static_cast<double>(model_size(model).total)), model.vocab_size);
  text += fmt::format("{} x {} tokens in {}, gradient checkpointing {}, logits {}: {} at the peak{}.\n",
                      counted(choice.micro_batch, "row"), asked.recipe.data.seq_len, asked.memory.precision,
                      checkpointing_text(choice.recomputed, model), logits_text(choice.chunked),
                      memory_text(plan.total()), together ? " of a process" : "");
  text += fmt::format(
      "  weights {}, fp32 master weights {}, optimizer moments {}, gradients {}, activations {}, workspace "
      "{}\n",
      memory_text(plan.weights), memory_text(plan.masters), memory_text(plan.moments),
      memory_text(plan.gradients), memory_text(plan.activations), memory_text(plan.working));
  text += fmt::format("{}: {}, of which {} can be used. {}\n\n", asked.memory.device,
                      memory_text(asked.memory.memory), memory_text(budget),
                      fits ? "It fits." : "It does not fit.");
  text += table(asked, choice.chunked || !fits, budget) + "\n";
  if (!advice) {
    text += "Not even a micro-batch of one row fits: take shorter rows (data.seq_len) or a smaller model.\n";
  } else if (fits) {
    text += "Run it as it is.\n";
  } else {
    text += fmt::format(
        "The same batch size at the highest speed ({}):\n  --train.micro_batch {} --train.accumulate "
        "{} "
        "--train.fused_head on --model.gradient_checkpointing {}\n",
        memory_text(asked.memory.planner.plan(*advice).total()), advice->micro_batch, advice->accumulate,
        checkpointing_text(advice->recomputed, model));
  }
  if (together) text += "\n" + text_of(*together, asked.recipe);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_fit(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<FitArguments>();
  auto* verb = app.add_subcommand("fit", "Predict the memory that a training needs, and what fits");
  verb->add_option("CONFIG", options->config,
                   "A recipe's file; or a run, a checkpoint or a Hugging Face folder")
      ->required();
  verb->add_option("--memory", options->memory,
                   "GiB to fit into; without it train.memory_limit, or all of train.device's")
      ->default_str("")
      ->check(at_least(0.001));
  verb->add_flag("--json", options->json, "For programs");
  options->world.add_to(*verb);
  verb->footer(
      std::string(kTakesSettings) +
      "Examples:\n"
      "  tightloop fit configs/gpt2-124m.yaml --memory 16 --train.micro_batch 64\n"
      "  tightloop fit configs/gpt2-124m.yaml --memory 141 --world 8 --link nvlink --step-ms 109.9\n"
      "  tightloop fit configs/gpt2-124m.yaml --memory 141 --world 64 --link 400gbe --cards 8 --step-ms "
      "109.9 --dist.shard optimizer --train.step_tokens 4194304");
  verb->callback([=] { fit(*options, settings); });
}

}  // namespace tightloop::cli
