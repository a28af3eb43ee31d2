#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace tightloop::serve {

void TimeHistogram::observe(double seconds) {
  const auto bucket = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  microseconds_.fetch_add(static_cast<uint64_t>(std::max(0.0, seconds) * 1e6), std::memory_order_relaxed);
}

std::string TimeHistogram::text(const std::string& name, const std::string& labels) const {
  std::string text;
  uint64_t sum = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, sum);
  }
  text += fmt::format("{}_sum{{{}}} {:.6f}\n", name, labels,
                      static_cast<double>(microseconds_.load(std::memory_order_relaxed)) / 1e6);
  return text + fmt::format("{}_count{{{}}} {}\n", name, labels, sum);
}

void RequestCounts::add(const std::string& endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[{endpoint, status}];
}

std::string RequestCounts::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [key, count] : counts_)
    text += fmt::format("tightloop_requests_total{{endpoint=\"{}\",code=\"{}\"}} {}\n",
                        label_value(key.first), key.second, count);
  return text;
}

std::string label_value(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    if (c == '\n')
      escaped += "\\n";
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace tightloop::serve
