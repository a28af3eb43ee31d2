#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/engine/loss_buffer.h"
#include "train/report/log_config.h"

namespace tightloop {

/// How the number of a line comes from those of its steps.
enum class Reduction {
  kHost,            // it does not: the host sets it (IntervalReport::set)
  kTokenMean,       // by supervised token
  kCheckedMean,     // by supervised token of the steps whose correct ones were counted
  kSourceMean,      // the same for each source of a mixture
  kSourceFraction,  // the supervised tokens of each source
  kStepMean,        // by step
  kExpertMean,      // by micro-batch, of a model with experts
  kExpertLoads,     // the same of LossBuffer::expert_loads(), by layer
  kLast,            // as the last step had it
  kStepsSoFar,      // steps of the run in which it was not 0
};

/// A number in metrics.jsonl: all that the program knows of it. Whoever computes it only gives it.
struct Metric {
  std::string_view name;       // in metrics.jsonl; an ending such as <source> stands for the name of one
  std::string_view help;       // for docs/metrics.md, which a test compares
  bool Due::*every = nullptr;  // which log.* interval it follows; null: it is in each line
  Reduction reduction = Reduction::kHost;
  LossBuffer::Column column = LossBuffer::kColumns;  // what is reduced
  bool reduced = false;                              // also with log.reduced_logging
  bool left_out_at_zero = false;
  bool list = false;  // numbers by layer: a histogram in charts, and no column of metrics.csv
  std::string (*text)(double value, bool running) = nullptr;  // on the terminal, where it is shown there
};

/// All of them, in the order of the documentation and of the terminal. The only place to add one.
const std::vector<Metric>& metric_table();
/// Null where there is none of that name.
const Metric* find_metric(std::string_view name);

/// What the terminal says of a number measured on held-out data: "held-out loss 2.3145", "BLEU 31.20".
std::string evaluation_text(std::string_view name, double value);

}  // namespace tightloop
