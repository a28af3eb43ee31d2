#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace tightloop {

/// Seconds between two plain lines of progress where standard error is no terminal: 10, or what
/// $TIGHTLOOP_PROGRESS_SECONDS says.
double progress_seconds();

/// Calls `tick` every `apart` from a thread of its own, until it is destroyed.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds apart, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;
};

/// How far work is that may take long, for people: what is done of it and the time left. On a terminal it is
/// the live line; elsewhere a plain line comes after 2 seconds, then every progress_seconds(). Counting costs
/// an atomic addition, from any thread: the line is drawn by a thread of its own, also while the work waits.
class ProgressLine {
 public:
  enum class Unit { kBytes, kCount };
  /// `total` 0: nobody knows; the line then has the time so far.
  explicit ProgressLine(std::string what, uint64_t total = 0, Unit unit = Unit::kBytes);
  /// Takes the live line away.
  ~ProgressLine();

  void add(uint64_t more) { done_.fetch_add(more, std::memory_order_relaxed); }
  void set(uint64_t done) { done_.store(done, std::memory_order_relaxed); }
  /// Where the count is somebody else's: asked whenever the line is drawn, from the line's thread.
  void count_from(std::function<uint64_t()> done);
  /// A few words more, such as "12M tokens"; asked for in the same way.
  void note_from(std::function<std::string()> note);

 private:
  using Clock = std::chrono::steady_clock;
  void tick();
  /// Seconds left by the speed of the last half minute.
  std::optional<double> left(uint64_t done, Clock::time_point now);

  const std::string what_;
  const uint64_t total_;
  const Unit unit_;
  std::atomic<uint64_t> done_{0};
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
  bool drawn_ = false;
  std::deque<std::pair<Clock::time_point, uint64_t>> samples_;
  std::mutex mutex_;  // of the two functions
  std::function<uint64_t()> count_;
  std::function<std::string()> note_;
  Ticker ticker_;  // last: its thread uses all of the above
};

/// "Tokenizing: 34 % of 1.2 GiB, 12M tokens, about 1m05s left". `left`: nothing where it is not known yet.
std::string progress_line(const std::string& what, uint64_t done, uint64_t total, ProgressLine::Unit unit,
                          const std::string& note, std::optional<double> left, double so_far);

}  // namespace tightloop
