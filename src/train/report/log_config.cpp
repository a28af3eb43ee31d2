#include "train/report/log_config.h"

#include "core/config.h"

namespace tightloop {

void LogConfig::describe(Fields& fields) {
  fields
      .add("detail_steps", detail_steps,
           "Steps between gradient norms, update ratios, step time, MFU, tokens/s, data wait and GPU load")
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
  fields.add("tensorboard", tensorboard, "Event files for TensorBoard, in tensorboard/ of the run's folder");
  fields.add("csv", csv, "metrics.csv in the run's folder: a row for each line, a column for each number");
}

void WandbConfig::describe(Fields& fields) {
  fields.add("mode", mode, "Whether metrics, settings and samples go to Weights & Biases");
  fields.add("project", project, "Its project");
  fields.add("entity", entity, "User or team that it belongs to; empty: as wandb login has it");
  fields.add("name", name, "What the run is called there; empty: run.name");
  fields.add("id", id, "The W&B run to go on with; empty: a new one, which a resumed run continues");
  fields.add("tags", tags, "Labels of the run");
  fields.add("python", python, "The Python that has the package wandb");
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
