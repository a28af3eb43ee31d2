#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/device.h"
#include "core/error.h"
#include "core/terminal.h"
#include "model/model_size.h"
#include "train/memory_plan.h"
#include "train/precision.h"

namespace tightloop::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiB = 1 << 30;

struct FitArguments {
  std::string config;
  double memory = 0;  // GiB; 0: the device's
  bool json = false;
};

std::string size_text(double bytes) {
  return bytes < kGiB ? fmt::format("{:.0f} MiB", bytes / (1 << 20))
                      : fmt::format("{:.2f} GiB", bytes / kGiB);
}

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

/// What is asked about, and the memory that there is.
struct Question {
  Recipe recipe;
  std::string device;
  double memory;
  MemoryPlanner planner;
};

Question question(const FitArguments& options, const Settings& settings) {
  Recipe recipe = read_recipe(options.config, settings);
  resolve_model(recipe);
  Device& device = tightloop::device(recipe.train.device);
  if (recipe.model.translates())
    throw usage_error(
        "fit knows rows of text; how large batches of pairs are is for data.batch_tokens to say.");
  const bool given = options.memory > 0, cuda = given || device.is_cuda();  // asked about a GPU of that size
  const auto& precision = recipe.train.precision;
  const bool wide = given ? precision.ends_with("32") : compute_dtype(precision, device) == at::kFloat;
  const double limit = given ? options.memory : recipe.train.memory_limit;
  const double memory = limit > 0 ? limit * kGiB : static_cast<double>(device.total_memory());
  MemoryPlanner planner(recipe.model, recipe.train, recipe.data.seq_len, wide ? 4 : 2, cuda);
  return {std::move(recipe), given ? "The memory given" : device.description(), memory, std::move(planner)};
}

MemoryChoice written(const Question& asked) {
  auto choice = asked.planner.written();
  ModelConfig model = asked.recipe.model;
  model.gradient_checkpointing = settled_checkpointing(asked.planner, model, asked.memory);
  choice.recomputed = model.recomputed_blocks();
  return choice;
}

std::string table(const Question& asked, double budget) {
  const auto& model = asked.recipe.model;
  std::string text = fmt::format("{:>12} {:>12} {:>12}   layers with checkpointing, so that it fits\n",
                                 "micro-batch", "none", "all");
  for (MemoryChoice choice = written(asked);; choice.micro_batch /= 2) {
    choice.accumulate = std::max<int64_t>(
        1, asked.recipe.train.micro_batch * asked.recipe.train.accumulate / choice.micro_batch);
    choice.chunked = true;
    const auto bytes = [&](int64_t blocks) {
      choice.recomputed = blocks;
      return asked.planner.plan(choice).total();
    };
    const auto found = asked.planner.with_checkpointing(choice, budget);
    text += fmt::format("{:>12} {:>12} {:>12}   {}\n", choice.micro_batch, size_text(bytes(0)),
                        size_text(bytes(model.layers)),
                        found ? checkpointing_text(found->recomputed, model) : "does not fit");
    if (choice.micro_batch == 1) return text;
  }
}

void fit(const FitArguments& options, const Settings& settings) {
  const Question asked = question(options, settings);
  const auto& model = asked.recipe.model;
  const double budget = kUsableMemory * asked.memory;
  const MemoryChoice choice = written(asked);
  const MemoryPlan plan = asked.planner.plan(choice);
  const bool fits = plan.total() <= budget;
  const auto advice = asked.planner.advice(budget);

  if (options.json) {
    Json json{{"parameters", model_size(model).total},
              {"memory_bytes", static_cast<int64_t>(asked.memory)},
              {"usable_bytes", static_cast<int64_t>(budget)},
              {"written", json_of(choice, model)},
              {"predicted_bytes", json_of(plan)},
              {"fits", fits},
              {"advice", nullptr}};
    if (advice) {
      json["advice"] = json_of(*advice, model);
      json["advice_bytes"] = json_of(asked.planner.plan(*advice));
    }
    std::puts(json.dump(2).c_str());
    return;
  }
  std::string text = fmt::format("{} parameters, vocabulary {}.\n",
                                 human_count(static_cast<double>(model_size(model).total)), model.vocab_size);
  text +=
      fmt::format("{} rows x {} tokens, gradient checkpointing {}, logits {}: {} at the peak.\n",
                  choice.micro_batch, asked.recipe.data.seq_len, checkpointing_text(choice.recomputed, model),
                  choice.chunked ? "in chunks" : "whole", size_text(plan.total()));
  text += fmt::format(
      "  weights {}, fp32 master weights {}, optimizer moments {}, gradients {}, activations {}, workspace "
      "{}\n",
      size_text(plan.weights), size_text(plan.masters), size_text(plan.moments), size_text(plan.gradients),
      size_text(plan.activations), size_text(plan.working));
  text += fmt::format("{}: {}, of which {} can be used. {}\n\n", asked.device, size_text(asked.memory),
                      size_text(budget), fits ? "It fits." : "It does not fit.");
  text += table(asked, budget) + "\n";
  if (!advice) {
    text += "Not even a micro-batch of one row fits: take shorter rows (data.seq_len) or a smaller model.\n";
  } else if (fits) {
    text += "Run it as it is.\n";
  } else {
    text += fmt::format(
        "The same batch size at the highest speed ({}):\n  --train.micro_batch {} --train.accumulate "
        "{} "
        "--train.fused_head on --model.gradient_checkpointing {}\n",
        size_text(asked.planner.plan(*advice).total()), advice->micro_batch, advice->accumulate,
        checkpointing_text(advice->recomputed, model));
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_fit(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<FitArguments>();
  auto* verb = app.add_subcommand("fit", "Predict the memory that a training needs, and what fits");
  verb->add_option("CONFIG", options->config, "A recipe's file")->required();
  verb->add_option("--memory", options->memory,
                   "GiB to fit into; without it train.memory_limit, or all of train.device's")
      ->default_str("")
      ->check(at_least(0.001));
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop fit configs/gpt2-124m.yaml --memory 16 --train.micro_batch 64");
  verb->callback([=] { fit(*options, settings); });
}

}  // namespace tightloop::cli
