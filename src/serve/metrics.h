#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace tightloop::serve {

/// How often something took how long. From any thread.
class TimeHistogram {
 public:
  static constexpr std::array<double, 16> kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                  0.5,   1,      2.5,   5,    10,    30,   60,  120};
  void observe(double seconds);
  /// As Prometheus reads it; `labels` such as model="a".
  std::string text(const std::string& name, const std::string& labels) const;

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<uint64_t> microseconds_{0};
};

/// What is measured of a model's answers.
struct AnswerTimes {
  TimeHistogram first_token, between_tokens;
};

/// Requests by path and status.
class RequestCounts {
 public:
  void add(const std::string& endpoint, int status);
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> counts_;
};

/// A value of a label: quotes, backslashes and line ends escaped.
std::string label_value(const std::string& text);

}  // namespace tightloop::serve
