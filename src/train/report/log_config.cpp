#include "train/report/log_config.h"

#include "core/config.h"

namespace tightloop {

void LogConfig::describe(Fields& fields) {
  fields
      .add("detail_steps", detail_steps,
           "Steps between gradient norm, step time, MFU, tokens/s and data wait")
      .range(0, 1e9);
  fields
      .add("dataset_metrics_steps", dataset_metrics_steps, "Steps between accuracy and the losses by source")
      .range(0, 1e9);
  fields.add("memory_steps", memory_steps, "Steps between readings of the device's memory").range(0, 1e9);
  fields.add("flops", flops, "How FLOPs per token are counted for MFU");
  fields
      .add("flops_steps", flops_steps, "Steps between entries of FLOPs per token; the first step has one too")
      .range(0, 1e9);
  fields.add("flush_steps", flush_steps, "Steps after which metrics are on disk for sure; 0: only at the end")
      .range(0, 1e9);
  fields.add("reduced_logging", reduced_logging, "Only loss, learning rate, epoch and step");
  fields.add("log_dataset_metrics", log_dataset_metrics, "Accuracy, and loss and accuracy by source");
  fields.add("asynchronous", asynchronous, "Metrics are written by a thread of their own");
}

Due due(const LogConfig& config, int64_t before, int64_t step, bool last) {
  const auto every = [&](int64_t steps) { return steps > 0 && (step / steps > before / steps || last); };
  Due due;
  if (config.reduced_logging) return due;
  due.detail = every(config.detail_steps);
  due.datasets = config.log_dataset_metrics && every(config.dataset_metrics_steps);
  due.memory = every(config.memory_steps);
  due.flops = every(config.flops_steps) || (config.flops_steps > 0 && before == 0);
  return due;
}

}  // namespace tightloop
