#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "train/report/metrics.h"
#include "train/run/run_folder.h"

namespace tightloop {

/// Drops the lines of steps after `step` from a file of JSON lines, where it is there, and those that are cut
/// off. Where that fails the file stays as it is, with a warning: later lines of a step are the ones that
/// count.
void drop_lines_after(const std::filesystem::path& file, int64_t step);

struct Recipe;

/// metrics.jsonl: one object a line.
class JsonLinesSink : public Sink {
 public:
  /// Appends to `file`; when a run goes on after `resumed_step`, lines of later steps are dropped first.
  JsonLinesSink(const std::filesystem::path& file, int64_t resumed_step);
  std::string name() const override { return path_.filename().string(); }
  void write(const MetricsLine& line) override;
  void flush() override;
  void rewind(int64_t step) override;

 private:
  /// To append, once lines of steps after `step` are dropped; 0: none are.
  void open_after(int64_t step);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// "step  10/300  loss 2.3145  lr 3.00e-04  12.3k tok/s  1m05s left"; a running average as "loss ~2.3145".
std::string progress_text(const IntervalReport& report);

/// What every run has: the terminal and metrics.jsonl.
std::vector<std::unique_ptr<Sink>> standard_sinks(const std::filesystem::path& file, int64_t resumed_step);

/// The same, and those that the settings ask for. One of these that cannot begin is a warning.
std::vector<std::unique_ptr<Sink>> sinks_of(const RunFolder& run, Recipe& recipe, int64_t resumed_step);

}  // namespace tightloop
