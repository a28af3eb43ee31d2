#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/report/log_config.h"

namespace tightloop {

/// What the steps since the last report came to: a value for each metric of the table that is known.
struct IntervalReport {
  int64_t step = 0, total_steps = 0;
  bool running = false;   // an average so far, between two looks at the device: shown, not kept
  double supervised = 0;  // tokens that the loss is the mean over
  Due due{.detail = true, .datasets = true, .memory = true, .flops = true};  // what is told of the values
  nlohmann::json values = nlohmann::json::object();  // by name in the table; <source>: an object by its name

  /// A logic error where the table has no such metric.
  void set(std::string_view metric, nlohmann::json value);
  std::optional<double> number(std::string_view metric) const;
};

/// A line on its way to where metrics go.
struct MetricsLine {
  nlohmann::json values;                   // name to number; "global_step" and "time" are always there
  std::optional<IntervalReport> report{};  // what the values of a training line were made of
  bool running() const { return report && report->running; }
};

/// Where metrics go. Calls come from one thread. One that throws is reported and gets no more of them.
class Sink {
 public:
  virtual ~Sink() = default;
  /// For people: "metrics.csv".
  virtual std::string name() const = 0;
  virtual void write(const MetricsLine& line) = 0;
  /// What the model wrote, as in samples.jsonl.
  virtual void sample(const nlohmann::json& /*sample*/) {}
  virtual void flush() = 0;
  /// The run went back to a step: what was told of later ones is no longer true.
  virtual void rewind(int64_t /*step*/) {}
  /// The last call, after a flush. `failed`: training ended with an error.
  virtual void finish(bool /*failed*/) {}
};

/// Hands lines to the sinks, on a thread of its own (log.asynchronous): the training loop only passes
/// numbers on, and never waits for a sink that hangs. What there is no room for is left out, counted and
/// said. Sinks are flushed every log.flush_steps, when nothing has come for a second, and at the end. Calls
/// come from one thread.
class Metrics {
 public:
  Metrics(const LogConfig& config, std::vector<std::unique_ptr<Sink>> sinks);
  ~Metrics();

  void interval(const IntervalReport& report);
  /// Any other line: {"global_step": N, "eval/loss": ...}.
  void line(const nlohmann::json& line);
  /// A line of samples.jsonl, for sinks that show texts; the file itself is not theirs.
  void sample(nlohmann::json sample);
  /// The run goes on after this step, at which it was before: later lines and losses are forgotten.
  void rewind(int64_t step);
  /// All so far is to be in the files soon. Waits for that, but no longer than `most`: a sink that hangs must
  /// not hold up training.
  void flush(std::chrono::milliseconds most = {});
  /// Waits until all of it is written. The losses reported so far, in order. Without this call training
  /// counts as failed.
  std::vector<double> finish();

 private:
  class Writer;
  bool reduced_;
  std::vector<std::pair<int64_t, double>> losses_;  // with their steps
  std::unique_ptr<Writer> writer_;
};

/// The line of metrics.jsonl, of what is due; `reduced`: log.reduced_logging.
nlohmann::json values_of(const IntervalReport& report, bool reduced);

/// JSON has no numbers that are not finite, and would write null: they become "NaN", "Infinity" and
/// "-Infinity", as JavaScript and Python spell them.
void spell_non_finite(nlohmann::json& values);

}  // namespace tightloop
