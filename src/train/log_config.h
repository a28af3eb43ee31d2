#pragma once

#include <cstdint>

namespace tightloop {

class Fields;

/// Section "log": what is written down, and how often. Steps are optimizer steps.
struct LogConfig {
  int64_t detail_steps = 50, dataset_metrics_steps = 10, flush_steps = 200, memory_steps = 50,
          flops_steps = 500;
  bool reduced_logging = false, log_dataset_metrics = true, asynchronous = true;

  void describe(Fields& fields);
  /// Whether the sums by source and the correct tokens of this step are wanted.
  bool dataset_metrics_due(int64_t step) const {
    return log_dataset_metrics && !reduced_logging && step % dataset_metrics_steps == 0;
  }
};

}  // namespace tightloop
