#pragma once

#include <cstdint>
#include <string>

namespace tightloop {

class Fields;

/// Section "train": the loop.
struct TrainConfig {
  std::string device = "auto", precision = "auto";
  int64_t steps = 1000, micro_batch = 32, accumulate = 1, seed = 1337;
  double lr = 3e-4, min_lr = 0.1, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, clip = 1.0;
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  int64_t logging_steps = 10, eval_steps = 0, eval_batches = 16, save_steps = 0, keep_checkpoints = 3,
          stop_at = 0;
  int64_t threads = 0;

  void describe(Fields& fields);
};

/// The learning rate of a step. Steps count from 1.
double learning_rate(const TrainConfig& config, int64_t step);

}  // namespace tightloop
