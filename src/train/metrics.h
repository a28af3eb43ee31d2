#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tightloop {

/// What one logging interval came to.
struct IntervalReport {
  int64_t step = 0, total_steps = 0;
  double loss = 0, lr = 0, grad_norm = 0, epoch = 0;
  double supervised = 0;  // tokens that the loss is the mean over
  double step_seconds = 0, tokens_per_second = 0, data_wait_share = 0;
  std::vector<std::pair<std::string, double>> source_losses{};  // of a mixture: source, mean loss
  std::optional<double> balance_loss{};                         // of a mixture of experts
  std::vector<std::vector<double>> expert_loads{};              // by layer
  int64_t empty_batches = 0;  // micro-batches so far in which nothing was to be learned
  int64_t skipped_steps = 0;  // so far: their gradients were not finite
  int64_t syncs = 0;          // so far: times that the host asked the device for something
  std::optional<double> accuracy{}, loss_scale{};
  std::vector<std::pair<std::string, double>> source_accuracies{};
};

/// Writes metrics.jsonl and draws progress, on a thread of its own: the training loop only hands numbers
/// over.
class Metrics {
 public:
  /// Appends to `file`; when a run goes on after `resumed_step`, lines of later steps are dropped first.
  Metrics(const std::filesystem::path& file, int64_t resumed_step);
  ~Metrics();

  void interval(const IntervalReport& report);
  /// Any other line: {"global_step": N, "eval/loss": ...}.
  void line(const nlohmann::json& line);
  /// Waits until all of it is written. The losses reported so far, in order.
  std::vector<double> finish();

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace tightloop
