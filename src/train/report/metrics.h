#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "train/report/log_config.h"

namespace tightloop {

/// What the steps since the last report came to. What is not due (see due()) is left out.
struct IntervalReport {
  int64_t step = 0, total_steps = 0;
  bool running = false;  // an average so far, between two looks at the device: shown, not kept
  std::optional<double> loss{}, lr{}, epoch{};
  double supervised = 0;  // tokens that the loss is the mean over
  int64_t syncs = 0;      // of host and device, since the start
  std::optional<double> grad_norm{}, step_seconds{}, mfu{}, tokens_per_second{}, data_wait_share{};
  std::optional<double> flops_per_token{}, counted_flops_per_token{};
  std::optional<MemoryStats> memory{};
  std::optional<double> accuracy{};  // of tokens
  std::vector<std::pair<std::string, double>> source_losses{}, source_accuracies{};
  std::optional<double> balance_loss{};             // of a mixture of experts
  std::vector<std::vector<double>> expert_loads{};  // by layer
  std::optional<double> loss_scale{};               // of fp16
  int64_t empty_batches = 0;                        // micro-batches so far in which nothing was to be learned
  int64_t skipped_steps = 0;                        // so far, because of gradients that were not finite
  struct Pace {
    double step_seconds = 0, tokens_per_second = 0;
  } pace{};  // for the progress line, due or not
};

/// Takes out what is not due; the pace stays.
void keep_due(IntervalReport& report, const Due& due);

/// A line on its way to where metrics go.
struct MetricsLine {
  nlohmann::json values;                   // name to number; "global_step" is always there
  std::optional<IntervalReport> report{};  // what the values of a training line were made of
  bool running() const { return report && report->running; }
};

/// Where metrics go. Calls come from one thread. One that throws is reported and gets no more of them.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const MetricsLine& line) = 0;
  virtual void flush() = 0;
};

/// Hands lines to the sinks, on a thread of its own (log.asynchronous): the training loop only passes
/// numbers on. Sinks are flushed every log.flush_steps, when nothing has come for a second, and at the end.
class Metrics {
 public:
  Metrics(const LogConfig& config, std::vector<std::unique_ptr<Sink>> sinks);
  ~Metrics();

  void interval(const IntervalReport& report);
  /// Any other line: {"global_step": N, "eval/loss": ...}.
  void line(const nlohmann::json& line);
  /// All so far is to be on disk soon (before a checkpoint counts on it). Does not wait.
  void flush();
  /// Waits until all of it is written. The losses reported so far, in order.
  std::vector<double> finish();

 private:
  class Writer;
  bool reduced_;
  std::vector<double> losses_;
  std::unique_ptr<Writer> writer_;
};

/// The line of metrics.jsonl; `reduced`: log.reduced_logging.
nlohmann::json values_of(const IntervalReport& report, bool reduced);

/// JSON has no numbers that are not finite, and would write null: they become "NaN", "Infinity" and
/// "-Infinity", as JavaScript and Python spell them.
void spell_non_finite(nlohmann::json& values);

}  // namespace tightloop
