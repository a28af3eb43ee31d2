#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "train/report/event_file.h"
#include "train/report/metrics.h"

namespace tightloop {

/// runs/NAME/tensorboard: numbers as scalars, lists as histograms, samples as texts.
class TensorboardSink : public Sink {
 public:
  /// When a run goes on after `resumed_step`, points of later steps are dropped.
  TensorboardSink(const std::filesystem::path& folder, int64_t resumed_step);
  std::string name() const override { return "TensorBoard"; }
  void write(const MetricsLine& line) override;
  void sample(const nlohmann::json& sample) override;
  void flush() override { file_.flush(); }
  /// A new event file says which points are no longer true.
  void rewind(int64_t step) override;

 private:
  const std::filesystem::path folder_;
  EventFile file_;
  int64_t sampled_step_ = -1;
  std::map<std::string, int> samples_;  // of that step, by kind
};

}  // namespace tightloop
