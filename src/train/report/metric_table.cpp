#include "train/report/metric_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

std::string loss_text(double value, bool running) {
  return fmt::format("loss {}{:.4f}", running ? "~" : "", value);
}
std::string lr_text(double value, bool) { return fmt::format("lr {:.2e}", value); }
std::string speed_text(double value, bool) { return fmt::format("{} tok/s", human_count(value)); }
std::string held_out_text(double value, bool) { return fmt::format("held-out loss {:.4f}", value); }
std::string accuracy_text(double value, bool) { return fmt::format("accuracy {:.1f} %", 100 * value); }
std::string bleu_text(double value, bool) { return fmt::format("BLEU {:.2f}", value); }
std::string chrf_text(double value, bool) { return fmt::format("chrF {:.2f}", value); }
std::string core_text(double value, bool) { return fmt::format("CORE {:.4f}", value); }
std::string bits_text(double value, bool) { return fmt::format("{:.4f} bits per byte", value); }

}  // namespace

const std::vector<Metric>& metric_table() {
  using R = Reduction;
  using B = LossBuffer;
  static const std::vector<Metric> table{
      {.name = "global_step", .help = "the step", .reduced = true},
      {.name = "time",
       .help = "when the line was made: seconds since 1970, to the millisecond",
       .reduced = true},
      {.name = "syncs", .help = "times that the host waited for the device (or would have), since the start"},
      {.name = "training/loss",
       .help = "mean over the supervised tokens since the line before",
       .reduction = R::kTokenMean,
       .column = B::kLoss,
       .reduced = true,
       .text = loss_text},
      {.name = "training/mean_loss", .help = "mean over the supervised tokens of the run so far"},
      {.name = "training/bits_per_byte",
       .help = "the loss in bits for each byte of the supervised text; see below"},
      {.name = "training/lr", .help = "learning rate of the step", .reduced = true, .text = lr_text},
      {.name = "training/epoch", .help = "passes over the data so far, with fractions", .reduced = true},
      {.name = "training/epoch_loss",
       .help = "mean over the supervised tokens of a whole pass over the data; in a line in which one ended"},
      {.name = "training/epoch_seconds",
       .help = "seconds of that pass's steps; evaluating and saving are not counted"},
      {.name = "training/lr/<group>",
       .help = "learning rates by group of parameters, where there are several (`train.optimizer muon`)"},
      {.name = "training/grad_norm",
       .help = "norm of the gradient before clipping",
       .every = &Due::detail,
       .reduction = R::kLast,
       .column = B::kGradNorm},
      {.name = "training/grad_norm_by_layer",
       .help = "the same of each block, in their order (a translator's encoder first)",
       .every = &Due::detail,
       .list = true},
      {.name = "training/grad_norm/<parameter>",
       .help = "the same of each parameter outside of blocks",
       .every = &Due::detail},
      {.name = "training/update_ratio_by_layer",
       .help = "norm of a block's update over the norm of its weights before it",
       .every = &Due::detail,
       .list = true},
      {.name = "training/update_ratio/<parameter>",
       .help = "the same of each parameter outside of blocks",
       .every = &Due::detail},
      {.name = "perf/step_time", .help = "seconds a step", .every = &Due::detail},
      {.name = "perf/forward_time",
       .help = "seconds a step in the forward pass, with the loss",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kForward,
       .left_out_at_zero = true},
      {.name = "perf/backward_time",
       .help = "seconds a step in the backward pass, with the adding up of gradients",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kBackward,
       .left_out_at_zero = true},
      {.name = "perf/update_time",
       .help = "seconds a step in norm, clipping and optimizer",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kUpdate,
       .left_out_at_zero = true},
      {.name = "perf/data_time",
       .help = "seconds a step that the device waited for its micro-batch",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kData,
       .left_out_at_zero = true},
      {.name = "perf/idle_time",
       .help = "seconds a step that the device waited for the host",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kIdle,
       .left_out_at_zero = true},
      {.name = "perf/tokens_per_second",
       .help = "tokens through the model, all processes",
       .every = &Due::detail,
       .text = speed_text},
      {.name = "perf/mfu",
       .help = "MFU: the model's FLOPs per second as a fraction of the device's peak",
       .every = &Due::detail},
      {.name = "perf/data_wait",
       .help = "fraction of the time that steps waited for data",
       .every = &Due::detail},
      {.name = "perf/loader_ready",
       .help = "micro-batches that the loader had ready when one was taken, a mean",
       .every = &Due::detail},
      {.name = "perf/communication",
       .help = "seconds a step that gradients are added up over processes; left out with one",
       .every = &Due::detail,
       .reduction = R::kStepMean,
       .column = B::kCommunication,
       .left_out_at_zero = true},
      {.name = "perf/flops_per_token",
       .help = "FLOPs per token, forward and backward, from the model's shapes",
       .every = &Due::flops},
      {.name = "perf/flops_per_token_counted",
       .help = "the same as counted from operators; only with `log.flops profiler`",
       .every = &Due::flops},
      {.name = "memory/allocated_gib", .help = "in tensors now", .every = &Due::memory},
      {.name = "memory/reserved_gib", .help = "held by the allocator", .every = &Due::memory},
      {.name = "memory/peak_gib", .help = "most in tensors so far", .every = &Due::memory},
      {.name = "memory/host_gib", .help = "of the process, in the machine's memory", .every = &Due::memory},
      {.name = "device/gpu_utilization",
       .help = "fraction of the time in which the GPU ran a kernel, by its driver",
       .every = &Due::detail},
      {.name = "device/power_watts", .help = "what the GPU draws", .every = &Due::detail},
      {.name = "device/temperature_c", .help = "of the GPU, in degrees Celsius", .every = &Due::detail},
      {.name = "device/memory_used_gib",
       .help = "of the GPU's memory, by all processes on it",
       .every = &Due::detail},
      {.name = "training/accuracy",
       .help = "fraction of supervised tokens whose top prediction was right",
       .every = &Due::datasets,
       .reduction = R::kCheckedMean,
       .column = B::kCorrect},
      {.name = "training/loss/<source>",
       .help = "the loss by source of a mixture",
       .every = &Due::datasets,
       .reduction = R::kSourceMean,
       .column = B::kLoss},
      {.name = "training/accuracy/<source>",
       .help = "the accuracy by source of a mixture",
       .every = &Due::datasets,
       .reduction = R::kSourceMean,
       .column = B::kCorrect},
      {.name = "training/tokens/<source>",
       .help = "fraction of the supervised tokens by source of a mixture",
       .every = &Due::datasets,
       .reduction = R::kSourceFraction},
      {.name = "training/balance_loss",
       .help = "of a mixture of experts: what is added to the loss to balance their loads",
       .reduction = R::kExpertMean,
       .column = B::kBalance},
      {.name = "training/expert_loads",
       .help = "of a mixture of experts: the fraction of choices that each got, by layer",
       .reduction = R::kExpertLoads,
       .list = true},
      {.name = "training/loss_scale",
       .help = "fp16: what losses are multiplied by",
       .reduction = R::kLast,
       .column = B::kLossScale,
       .left_out_at_zero = true},
      {.name = "training/skipped_steps",
       .help = "steps so far without an update, for whatever reason: gradients that are not finite, a spike "
               "that was "
               "left out, nothing to learn; left out while 0",
       .reduction = R::kStepsSoFar,
       .column = B::kSkipped,
       .left_out_at_zero = true},
      {.name = "training/empty_batches",
       .help = "micro-batches so far without a supervised token; left out while 0",
       .left_out_at_zero = true},
      {.name = "eval/loss", .help = "mean over held-out tokens", .text = held_out_text},
      {.name = "eval/accuracy",
       .help = "fraction of the same tokens whose top prediction was right",
       .text = accuracy_text},
      {.name = "eval/bits_per_byte",
       .help = "that loss in bits for each byte of the held-out text; see below",
       .text = bits_text},
      {.name = "eval/bleu", .help = "BLEU of `train.eval_translations` held-out pairs", .text = bleu_text},
      {.name = "eval/chrf", .help = "chrF of the same", .text = chrf_text},
      {.name = "eval/suite/<task>", .help = "accuracy in a task of `eval.suite`"},
      {.name = "eval/core", .help = "the mean of these tasks' centred accuracies (CORE)", .text = core_text},
  };
  return table;
}

const Metric* find_metric(std::string_view name) {
  const auto found = std::ranges::find(metric_table(), name, &Metric::name);
  return found == metric_table().end() ? nullptr : &*found;
}

std::string evaluation_text(std::string_view name, double value) {
  constexpr std::string_view kSuite = "eval/suite/";
  if (name.starts_with(kSuite)) return fmt::format("{} {:.1f} %", name.substr(kSuite.size()), 100 * value);
  const Metric* metric = find_metric(name);
  return metric && metric->text ? metric->text(value, false) : fmt::format("{} {:.2f}", name, value);
}

}  // namespace tightloop
