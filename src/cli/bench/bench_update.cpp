#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench/bench_common.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "model/language_model.h"
#include "ops/optim/adamw.h"
#include "ops/optim/gradient_norm.h"
#include "train/engine/precision.h"

namespace tightloop::cli {

namespace {

struct BenchUpdateArguments {
  std::string file;
  bool json = false;
};

void bench_update(const BenchUpdateArguments& options, const Settings& settings) {
  c10::NoGradGuard no_grad;
  Recipe recipe = read_recipe(options.file, settings);
  recipe.model.resolve(recipe.tokenizer.vocab_size, recipe.data.seq_len);
  Device& device = training_device(recipe.train, -1);
  const auto model = make_model(recipe.model, recipe.train.seed);
  model->parameters().to(at::Device(device.name()), at::kFloat);
  const auto dtype = compute_dtype(recipe.train.precision, device);
  ops::AdamwTensors tensors;
  double bytes = 0;
  for (const auto& value : model->parameters().values()) {
    const auto master = value.detach();
    tensors.masters.push_back(master);
    tensors.first.push_back(at::zeros_like(master));
    tensors.second.push_back(at::zeros_like(master));
    tensors.values.push_back(master.to(dtype));
    tensors.gradients.push_back(at::randn_like(master).to(dtype));
    tensors.rate.push_back(1), tensors.decay.push_back(0.1);
    const bool apart = dtype != at::kFloat;
    bytes += static_cast<double>(master.numel()) *
             (24.0 + static_cast<double>((apart ? 2 : 1) * tensors.values.back().element_size()));
  }
  const auto control = at::tensor({1e-4, 100.0, 10.0, 0.0}, at::kFloat).to(at::Device(device.name()));
  const ops::AdamwBetas betas{recipe.train.beta1, recipe.train.beta2, recipe.train.eps};
  const double adamw = milliseconds_of(device, [&] { ops::adamw_(tensors, betas, control); });
  const double norm = milliseconds_of(device, [&] { ops::gradient_norm(tensors.gradients); });
  const nlohmann::json result{{"parameters", model->parameters().count()},
                              {"adamw_ms", adamw},
                              {"norm_ms", norm},
                              {"adamw_gb_s", bytes / adamw / 1e6}};
  const std::string text =
      fmt::format("AdamW over {} parameters: {:.3f} ms, {:.0f} GB/s; the gradient's norm: {:.3f} ms",
                  model->parameters().count(), adamw, bytes / adamw / 1e6, norm);
  std::fputs(((options.json ? result.dump() : text) + "\n").c_str(), stdout);
}

}  // namespace

void add_bench_update(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<BenchUpdateArguments>();
  auto* verb = bench.add_subcommand("update", "Time AdamW alone, over the parameters of a recipe");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench update configs/gpt2-124m.yaml");
  verb->callback([=] { bench_update(*options, settings); });
}

}  // namespace tightloop::cli
