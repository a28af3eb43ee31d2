#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "train/report/metrics.h"

namespace tightloop {

/// metrics.jsonl: one object a line.
class JsonLinesSink : public Sink {
 public:
  /// Appends to `file`; when a run goes on after `resumed_step`, lines of later steps are dropped first.
  JsonLinesSink(const std::filesystem::path& file, int64_t resumed_step);
  void write(const MetricsLine& line) override;
  void flush() override;

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

/// "step  10/300  loss 2.3145  lr 3.00e-04  12.3k tok/s  1m05s left"; a running average as "loss ~2.3145".
std::string progress_text(const IntervalReport& report);

/// What every run has: the terminal and metrics.jsonl.
std::vector<std::unique_ptr<Sink>> standard_sinks(const std::filesystem::path& file, int64_t resumed_step);

}  // namespace tightloop
