#include "train/train_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/config.h"

namespace tightloop {

void TrainConfig::describe(Fields& fields) {
  fields.add("device", device, "Where to train: auto (a GPU where there is one), cpu, cuda or cuda:N");
  fields.add("precision", precision, "Compute dtype; auto: bf16 where the device is fast at it, else fp32")
      .choices({"auto", "fp32", "bf16"});
  fields.add("steps", steps, "Optimizer steps; they count from 1").range(1, 1e15);
  fields.add("micro_batch", micro_batch, "Rows in one forward and backward pass").range(1, 1 << 20);
  fields.add("accumulate", accumulate, "Passes per optimizer step").range(1, 1 << 20);
  fields.add("lr", lr, "Peak learning rate").range(0, 1e6);
  fields.add("schedule", schedule, "How the rate falls after the warm-up")
      .choices({"cosine", "linear", "constant"});
  fields.add("warmup_steps", warmup_steps, "Steps in which the rate rises from 0").range(0, 1e15);
  fields.add("min_lr", min_lr, "Where the schedule ends, as a share of train.lr").range(0, 1);
  fields.add("weight_decay", weight_decay, "AdamW's decay of matrices (norms have none)").range(0, 100);
  fields.add("beta1", beta1, "AdamW's first decay rate").range(0, 1);
  fields.add("beta2", beta2, "AdamW's second decay rate").range(0, 1);
  fields.add("eps", eps, "AdamW's epsilon").range(0, 1);
  fields.add("clip", clip, "Largest norm of the gradient; 0: no clipping").range(0, 1e9);
  fields.add("seed", seed, "Decides initial weights and the order of the data").range(0, 9e15);
  fields.add("logging_steps", logging_steps, "Steps between log lines; the loss shown is the mean over them")
      .range(1, 1e9);
  fields.add("eval_steps", eval_steps, "Steps between evaluations on held-out data; 0: only at the end")
      .range(0, 1e9);
  fields.add("eval_batches", eval_batches, "Micro-batches of held-out data in an evaluation; 0: all")
      .range(0, 1e9);
  fields.add("save_steps", save_steps, "Steps between checkpoints; 0: only at the end").range(0, 1e9);
  fields.add("keep_checkpoints", keep_checkpoints, "Newest checkpoints to keep; 0: all").range(0, 1e9);
  fields.add("stop_at", stop_at, "Stop (and save) after this step as if interrupted; 0: run to the end")
      .range(0, 1e15);
  fields.add("threads", threads, "CPU threads for computing; 0: one for each core").range(0, 4096);
}

double learning_rate(const TrainConfig& config, int64_t step) {
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.schedule == "constant") return config.lr;
  const double span = static_cast<double>(std::max<int64_t>(1, config.steps - config.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup_steps) / span);
  const double share =
      config.schedule == "linear" ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return config.lr * (config.min_lr + (1 - config.min_lr) * share);
}

}  // namespace tightloop
