#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/report/metrics.h"
#include "train/watch/run_log.h"

namespace tightloop {

/// What people see of a run: in the terminal that trains it, in `tightloop top` and in `tightloop runs`. It
/// is made of the lines that the run writes, so that all of them show the same.
struct RunView {
  std::string name;
  RunState state = RunState::kNew;
  int64_t step = 0, total_steps = 0;                  // 0: not known
  bool running = false;                               // the loss is an average so far, between two lines
  std::map<std::string, double, std::less<>> latest;  // the last value of each metric
  std::vector<double> losses;                         // of training, a line each
  std::map<std::string, std::pair<int64_t, double>, std::less<>> bests;  // of each eval/...: step and value
  std::string best_by = "eval/loss";                                     // which of them counts
  double started = 0;            // when it began or was resumed last, as unix_time(); 0: not known
  int64_t saved_step = 0;        // the newest checkpoint; 0: none
  double saved = 0;              // when it was made; 0: not known
  double news = 0;               // when it last wrote something; 0: not known
  int64_t warnings = 0;          // in its log
  std::string last_event, text;  // "stopped", and what is said of it
  std::string owner;             // of its lock, where that is a process of another machine
  std::string failure;           // the error that it ended with, until it begins again

  /// A line of metrics.jsonl.
  void add_metrics(const nlohmann::json& line);
  /// What the process that trains knows, of which metrics.jsonl has a part.
  void add_report(const IntervalReport& report);
  /// A line of events.jsonl.
  void add_event(const nlohmann::json& line);
  /// Forgets the metrics, which are to be read again.
  void forget_metrics();

  std::optional<double> number(std::string_view metric) const;
  /// Why it has crashed, as far as anybody said, or who may train it elsewhere; empty of others.
  std::string remark() const;
  /// Step and value of the best evaluation, by train.best_by.
  std::optional<std::pair<int64_t, double>> best() const;
  /// Seconds until the last step, at the present pace.
  std::optional<double> seconds_left() const;
  /// For programs.
  nlohmann::json json(double now) const;

 private:
  std::deque<std::pair<double, int64_t>> pace_;  // times and steps of the newest lines
  int64_t from_ = 0;                             // the step that it began at or went back to last
  int64_t best_after_ = 0;  // evaluations up to this step cannot be compared with those after it
};

}  // namespace tightloop
