#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/decode_cases.h"
#include "cli/bench/bench_common.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/terminal/progress_line.h"
#include "train/engine/device_speed.h"
#include "train/engine/precision.h"

namespace tightloop::cli {

namespace {

struct BenchOpsArguments {
  std::string device = "auto", only;
  bool json = false;
};

/// A forward pass, and a backward pass for what is not fixed.
std::function<void()> pass_of(const OpCase& one, const OpCase::Function& function) {
  std::vector<at::Tensor> leaves, inputs;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    const bool fixed =
        !one.backward || std::ranges::count(one.fixed, i) > 0 || !one.inputs[i].is_floating_point();
    inputs.push_back(fixed ? one.inputs[i] : one.inputs[i].detach().set_requires_grad(true));
    if (!fixed) leaves.push_back(inputs.back());
  }
  return [=, backward = one.backward] {
    const at::Tensor y = function(inputs);
    if (!backward) return;
    torch::autograd::grad({y}, leaves, {at::ones_like(y)});
  };
}

/// Bytes per second of a copy within the device's memory, read and written.
double copy_bytes_s(Device& device, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kByte);
  const int64_t bytes = device.is_cuda() ? int64_t{1} << 30 : int64_t{1} << 26;
  const at::Tensor from = at::ones_like(at::empty({bytes}, options)), to = at::empty_like(from);
  return 2e3 * static_cast<double>(bytes) / milliseconds_of(device, [&] { to.copy_(from); });
}

/// Milliseconds of a pass, as a graph where that is asked for and the device has them.
double time_of(Device& device, const std::function<void()>& pass, bool as_graph) {
  if (!as_graph) return milliseconds_of(device, pass);
  const c10::InferenceMode inference;
  pass();
  const auto graph = device.capture(pass);
  return milliseconds_of(device, graph ? [&] { graph->replay(); } : pass);
}

void bench_ops(const BenchOpsArguments& options) {
  TrainConfig train;
  train.device = options.device;
  Device& device = training_device(train, -1);
  const bool gpu = device.is_cuda();
  const auto dtype = compute_dtype(Precision::kAuto, device);
  auto cases = op_cases(gpu ? kBenchSizesGpu : kBenchSizesCpu, dtype, at::Device(device.name()));
  std::ranges::move(decode_cases(gpu ? kDecodeSizesGpu : kDecodeSizesCpu, dtype, at::Device(device.name())),
                    std::back_inserter(cases));
  if (std::ranges::none_of(cases,
                           [&](const OpCase& one) { return one.op.find(options.only) != std::string::npos; }))
    throw usage_error("no operator has '{}' in its name. Without --only all are timed.", options.only);
  const double bandwidth = copy_bytes_s(device, cases[0].inputs[0]), peak = measure_gemm_flops(device, dtype);
  nlohmann::json rows = nlohmann::json::array();
  std::string text = fmt::format(
      "{}, {}: copies {:.0f} GB/s, products {:.2f} TFLOP/s\n{:<30}{:<22}{:>10}{:>10}{:>10}{:>8}{:>9}\n",
      device.description(), c10::toString(dtype), bandwidth / 1e9, peak / 1e12,
      "operator, forward + backward", "shape", "ms", "GB/s", "TFLOP/s", "limit", "to ATen");
  ProgressLine progress("Operators", cases.size(), ProgressLine::Unit::kCount);
  size_t done = 0;
  for (const OpCase& one : cases) {
    progress.set(done++);
    if (one.op.find(options.only) == std::string::npos) continue;
    const double fused = time_of(device, pass_of(one, one.fused), one.graph != OpCase::Graphs::kNone),
                 plain = time_of(device, pass_of(one, one.plain), one.graph == OpCase::Graphs::kBoth);
    const double gb = one.bytes / fused / 1e6, tera = one.flops / fused / 1e9;
    const double limit = std::max(one.bytes / bandwidth, one.flops / peak) * 1e3 / fused;
    rows.push_back({{"op", one.op},
                    {"shape", one.shape},
                    {"ms", fused},
                    {"ms_aten", plain},
                    {"gb_s", gb},
                    {"tflop_s", tera},
                    {"share_of_limit", limit},
                    {"ratio_to_aten", plain / fused}});
    text += fmt::format("{:<30}{:<22}{:>10.3f}{:>10.1f}{:>10}{:>7.0f}%{:>8.2f}x\n", one.op, one.shape, fused,
                        gb, one.flops > 0 ? fmt::format("{:.2f}", tera) : "", 100 * limit, plain / fused);
  }
  std::fputs((options.json ? nlohmann::json{{"device", device.description()},
                                            {"copy_gb_s", bandwidth / 1e9},
                                            {"gemm_tflop_s", peak / 1e12},
                                            {"ops", rows}}
                                     .dump() +
                                 "\n"
                           : text)
                 .c_str(),
             stdout);
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  auto options = std::make_shared<BenchOpsArguments>();
  auto* verb = bench.add_subcommand("ops", "Time every operator against the device's limit and against ATen");
  verb->add_option("--device", options->device, "auto, cpu or cuda:N");
  verb->add_option("--only", options->only, "Operators whose name has this in it");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench ops --only norm");
  verb->callback([=] { bench_ops(*options); });
}

}  // namespace tightloop::cli
