#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>

#include "core/terminal/progress_line.h"
#include "train/report/metrics.h"
#include "train/watch/run_follower.h"

namespace tightloop {

/// Progress: a block of lines on a terminal, which is what `tightloop top` shows of the run; elsewhere a
/// plain line every few seconds, so that logs of long runs stay short.
class TerminalSink : public Sink {
 public:
  explicit TerminalSink(const std::filesystem::path& run);
  ~TerminalSink() override;
  std::string name() const override { return "The terminal"; }
  void write(const MetricsLine& line) override;
  void flush() override {}
  void rewind(int64_t step) override;

 private:
  using Clock = std::chrono::steady_clock;
  /// What the run has behind it.
  void read_run();
  void write_plain(const MetricsLine& line);
  void draw();

  const std::filesystem::path run_;
  std::mutex mutex_;  // of all below: a ticker draws, too
  std::optional<RunFollower> follower_;
  RunView view_;
  Clock::time_point shown_{};
  std::optional<Ticker> ticker_;  // on a terminal; last: its thread uses all of the above
};

}  // namespace tightloop
