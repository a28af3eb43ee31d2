#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/trace.h"
#include "cli/at_least.h"
#include "cli/bench/bench_common.h"
#include "cli/model_choice.h"
#include "cli/verbs.h"
#include "core/interrupt.h"
#include "infer/generate.h"

namespace tightloop::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct BenchGenerateArguments {
  ModelChoice model;
  int64_t prompt_tokens = 64, new_tokens = 128, batch = 1, rounds = 1;
  bool json = false, no_graphs = false;
  std::string profile;
};

/// Bytes that one token of each text must read: weights once for all, keys and values of `length` tokens
/// each.
double bytes_of_step(const LanguageModel& model, int64_t batch, double length) {
  const auto& config = model.config();
  const bool tied = model.head().weight_VD.is_same(model.parameters().all().front().value);
  double bytes = 0;
  for (const auto& parameter : model.parameters().all()) {
    double read = 1;
    if (parameter.role == ParameterRole::kEmbedding && !tied)
      read = static_cast<double>(batch) / static_cast<double>(parameter.value.size(0));
    if (config.has_experts() && parameter.value.dim() == 3)
      read = std::min(
          1.0, static_cast<double>(batch * config.experts_per_token) / static_cast<double>(config.experts));
    bytes += read * static_cast<double>(parameter.value.nbytes());
  }
  const auto cached = static_cast<double>(config.layers * 2 * config.kv_heads * config.head_size *
                                          model.head().weight_VD.element_size());
  return bytes + static_cast<double>(batch) * length * cached;
}

/// Bytes a second that a copy within the device's memory reads and writes.
double copy_speed(const LanguageModel& model) {
  constexpr int64_t kBytes = 256 << 20;
  const auto from = at::ones({kBytes}, at::TensorOptions(at::kByte).device(model.device()));
  auto to = at::empty_like(from);
  return 2 * kBytes / (milliseconds_of(device(model.device().str()), [&] { to.copy_(from); }) / 1000);
}

/// Where the time of some steps behind the prompts goes.
std::string traced_steps(Decoder& decoder, const LanguageModel& model, const std::vector<Prompt>& prompts,
                         const std::string& file) {
  constexpr int64_t kTraced = 10, kBefore = 8;  // steps; by then they are captured
  size_t made = 0;
  for (const Prompt& prompt : prompts) {
    DecodeRequest request{.prompt = prompt.ids};
    request.sampling.temperature = 0, request.sampling.max_tokens = 2 * kBefore + kTraced;
    request.on_token = [&](const DecodedToken&) { return ++made, true; };
    decoder.submit(std::move(request));
  }
  while (made < kBefore * prompts.size() && decoder.advance()) {
  }
  const bool gpu = model.device().is_cuda();
  const auto table = trace(file, gpu, [&] {
    for (int64_t step = 0; step < kTraced; ++step) decoder.advance();
    device(model.device().str()).synchronize();
  });
  while (decoder.advance()) {
  }
  return table_text(table, kTraced, gpu ? "kernel" : "operator");
}

void measure(const BenchGenerateArguments& options) {
  auto run = options.model.load();
  std::vector<Prompt> prompts(static_cast<size_t>(options.batch));
  for (size_t row = 0; row < prompts.size(); ++row)  // no two begin alike
    for (int64_t i = 0; i < options.prompt_tokens; ++i)
      prompts[row].ids.push_back(
          static_cast<int32_t>((i * 37 + static_cast<int64_t>(row) * 101 + 1) % run.recipe.model.vocab_size));
  GenerateOptions generation;
  generation.sampling.temperature = 0, generation.sampling.max_tokens = options.new_tokens;
  DecoderConfig config = decoder_for(run.recipe.model, prompts, options.new_tokens, 0);
  config.share_prefixes = false;  // prompts are read each time
  config.graphs = !options.no_graphs;
  Decoder decoder(*run.model, config);
  size_t begun = 0;  // texts that have a token
  Clock::time_point all_begun;
  std::vector<bool> has_one;
  generation.on_token = [&](size_t row, int32_t) {
    if (!has_one[row] && ++begun == prompts.size()) all_begun = Clock::now();
    has_one[row] = true;
    return true;
  };
  std::vector<double> seconds, decoding;
  for (int64_t round = -1; round < options.rounds; ++round) {  // the first one warms up
    begun = 0, has_one.assign(prompts.size(), false);
    const auto start = Clock::now();
    generate(decoder, prompts, generation);
    throw_if_interrupted();
    if (round < 0) continue;
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    decoding.push_back(std::chrono::duration<double>(Clock::now() - all_begun).count());
  }
  std::string kernels;
  if (!options.profile.empty())
    kernels = "\n\n" + traced_steps(decoder, *run.model, prompts, options.profile);
  const double whole = median(seconds), behind = median(decoding);
  const auto texts = static_cast<double>(options.batch), tokens = static_cast<double>(options.new_tokens);
  const double speed = texts * tokens / whole, step = behind / std::max(1.0, tokens - 1);
  const double length = static_cast<double>(options.prompt_tokens) + tokens / 2;
  const double bytes = bytes_of_step(*run.model, options.batch, length), copy = copy_speed(*run.model);
  const double share = bytes / copy / step;
  const nlohmann::json json{{"seconds", whole},
                            {"replayed", decoder.load().replayed},
                            {"tokens_s", speed},
                            {"decoding_tokens_s", texts / step},
                            {"step_ms", step * 1000},
                            {"bytes_of_step", bytes},
                            {"copy_bytes_s", copy},
                            {"share_of_floor", share},
                            {"batch", options.batch},
                            {"prompt_tokens", options.prompt_tokens},
                            {"new_tokens", options.new_tokens}};
  const std::string text = fmt::format(
      "{} x {} tokens after {}: {:.3f} s, {:.1f} tokens/s; behind the prompts {:.1f} tokens/s, {:.3f} ms a "
      "step.\nA step reads {:.1f} MB of weights, keys and values; at {:.0f} GB/s, a copy's speed, that alone "
      "takes {:.3f} ms: {:.0f} % of the step.",
      options.batch, options.new_tokens, options.prompt_tokens, whole, speed, texts / step, step * 1000,
      bytes / 1e6, copy / 1e9, bytes / copy * 1000, share * 100);
  std::fputs(((options.json ? json.dump() : text + kernels) + "\n").c_str(), stdout);
}

}  // namespace

void add_bench_generate(CLI::App& bench) {
  auto options = std::make_shared<BenchGenerateArguments>();
  auto* verb =
      bench.add_subcommand("generate", "Time generation, greedy, the prompt included and without it");
  options->model.add_to(*verb);
  options->model.add_weights_to(*verb);
  verb->add_option("--prompt-tokens", options->prompt_tokens, "Length of the prompt")->check(at_least(1));
  verb->add_option("--new-tokens", options->new_tokens, "Tokens to generate")->check(at_least(1));
  verb->add_option("--batch", options->batch, "Texts at once")->check(at_least(1));
  verb->add_option("--rounds", options->rounds, "The median of this many counts")->check(at_least(1));
  verb->add_flag("--no-graphs", options->no_graphs, "Without CUDA graphs");
  verb->add_option("--profile", options->profile,
                   "Trace ten steps behind the prompts into this file (Chrome's format)");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench generate --model runs/mine --new-tokens 256");
  verb->callback([=] { measure(*options); });
}

}  // namespace tightloop::cli
