#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/io/helper_process.h"
#include "train/report/log_config.h"
#include "train/report/metrics.h"

namespace tightloop {

/// Weights & Biases, through its own Python package in a process of its own (kWandbScript), which is fed JSON
/// lines. It never holds up training: what that process is too slow for is left out and counted.
///
///     {"start": {...}}  what wandb.init() gets; the settings of the run as its config
///     {"step": 10, "time": 1763386000.123, "numbers": {...}, "histograms": {NAME: {"edges", "counts"}}}
///     {"step": 10, "sample": {...}}
///     {"finish": {"failed": false, "summary": {...}}}
///
/// It answers {"found": true} once its package is there, {"url": ...} when the run has begun,
/// {"error": SENTENCE} before it gives up, and {"finished": true}.
class WandbSink : public Sink {
 public:
  struct Limits {
    size_t waiting_bytes = 8 << 20;
    std::chrono::milliseconds beginning = std::chrono::seconds(2);  // to say whether its package is there
    std::chrono::milliseconds patience = std::chrono::seconds(30);  // for the last uploads
  };

  /// `folder`: of the run. `settings`: by section. A run that goes on continues the W&B run it began. Waits a
  /// moment for the word that the package is there; an error where it is not.
  WandbSink(const WandbConfig& config, const std::filesystem::path& folder, const nlohmann::json& settings,
            const Limits& limits);
  WandbSink(const WandbConfig& config, const std::filesystem::path& folder, const nlohmann::json& settings)
      : WandbSink(config, folder, settings, Limits()) {}
  std::string name() const override { return "Weights & Biases"; }
  void write(const MetricsLine& line) override;
  void sample(const nlohmann::json& sample) override;
  void flush() override;
  /// W&B's history only grows: steps that come again are ignored there.
  void rewind(int64_t step) override;
  void finish(bool failed) override;

  /// Of the helper, for tests.
  pid_t pid() const { return helper_->pid(); }

 private:
  void send(nlohmann::json message);
  /// Reads its answers; an error where it has given up or ended.
  void check();

  const Limits limits_;
  const std::filesystem::path folder_;
  const std::filesystem::path messages_;
  std::unique_ptr<HelperProcess> helper_;
  bool found_ = false, finished_ = false;  // it has said so: its package is there; it is done
  int64_t step_ = 0;
  double best_;  // eval/loss, also of before this process began
};

/// The program that talks to W&B, in Python.
extern const char* const kWandbScript;

/// The id under which W&B knows the run of this folder: `given`, or the one that the folder keeps, or a new
/// one, which it then keeps.
std::string wandb_id(const std::filesystem::path& folder, const std::string& given);

}  // namespace tightloop
