#include "train/log_config.h"

#include "core/config.h"

namespace tightloop {

void LogConfig::describe(Fields& fields) {
  fields
      .add("detail_steps", detail_steps,
           "Steps between lines that also tell the gradient's norm, speed and memory")
      .range(1, 1e9);
  fields.add("log_dataset_metrics", log_dataset_metrics, "Tell losses and token accuracy of each source");
  fields
      .add("dataset_metrics_steps", dataset_metrics_steps, "Steps between those; the others do not make them")
      .range(1, 1e9);
  fields.add("reduced_logging", reduced_logging, "Loss, rate and epoch only");
  fields.add("flush_steps", flush_steps, "Steps after which files are flushed").range(1, 1e9);
  fields.add("memory_steps", memory_steps, "Steps between looks at the device's memory; 0: never")
      .range(0, 1e9);
  fields.add("flops_steps", flops_steps, "Steps between counts of FLOPs by a profiler, where one is on")
      .range(1, 1e9);
  fields.add("asynchronous", asynchronous, "Write by a thread of its own instead of the training loop's");
}

}  // namespace tightloop
