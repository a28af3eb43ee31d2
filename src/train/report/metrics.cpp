#include "train/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/log.h"
#include "core/threads.h"
#include "train/report/metric_table.h"
#include "train/run/run_events.h"

namespace tightloop {

namespace {

constexpr std::chrono::seconds kIdle{1};
constexpr size_t kMostWaiting = 4096;  // lines for sinks that are slow

}  // namespace

void IntervalReport::set(std::string_view metric, nlohmann::json value) {
  if (!find_metric(metric))
    throw std::logic_error(fmt::format("'{}' is no metric of the table (metric_table.cpp)", metric));
  values[std::string(metric)] = std::move(value);
}

std::optional<double> IntervalReport::number(std::string_view metric) const {
  const auto found = values.find(metric);
  if (found == values.end()) return {};
  return found->get<double>();
}

nlohmann::json values_of(const IntervalReport& report, bool reduced) {
  nlohmann::json values{{"global_step", report.step}};
  for (const Metric& metric : metric_table()) {
    const auto found = report.values.find(metric.name);
    if (found == report.values.end() || (metric.every && !(report.due.*metric.every))) continue;
    if ((reduced && !metric.reduced) || (metric.left_out_at_zero && *found == 0)) continue;
    if (!metric.name.ends_with('>')) {
      values[std::string(metric.name)] = *found;
      continue;
    }
    const std::string prefix(metric.name.substr(0, metric.name.find('<')));
    for (const auto& [name, value] : found->items()) values[prefix + name] = value;
  }
  return values;
}

void spell_non_finite(nlohmann::json& values) {
  if (values.is_structured()) {
    for (auto& value : values) spell_non_finite(value);
  } else if (values.is_number_float()) {
    const auto number = values.get<double>();
    if (std::isnan(number)) values = "NaN";
    if (std::isinf(number)) values = number > 0 ? "Infinity" : "-Infinity";
  }
}

/// The queue, the thread and the sinks.
class Metrics::Writer {
 public:
  Writer(const LogConfig& config, std::vector<std::unique_ptr<Sink>> sinks)
      : flush_steps_(config.flush_steps), sinks_(std::move(sinks)) {
    if (config.asynchronous) thread_ = std::thread([this] { run(); });
  }
  ~Writer() { stop(/*failed=*/true); }

  void push_line(MetricsLine line) {
    // The newest running average is as good as those that nobody has looked at yet.
    if (line.running() && waiting_ > 0) return;
    line.values["time"] = unix_time();
    spell_non_finite(line.values);
    push({.line = std::move(line)});
  }
  void push_sample(nlohmann::json sample) { push({.sample = std::move(sample)}); }
  void push_rewind(int64_t step) { push({.rewind = step}); }
  void push_flush(std::chrono::milliseconds most) {
    const auto flushed = std::make_shared<std::promise<void>>();
    auto done = flushed->get_future();
    push({.flushed = flushed});
    if (most.count() > 0) done.wait_for(most);
  }
  void stop(bool failed) {
    queue_.close();
    if (thread_.joinable()) thread_.join();
    if (owed_rewind_) handle({.rewind = std::exchange(owed_rewind_, {})});
    flush();
    if (dropped_ > 0 && !sinks_.empty())
      log::warn("{} lines of metrics are in no file: they came faster than they could be written.",
                dropped_.load());
    for_each_sink([&](Sink& sink) { sink.finish(failed); });
    sinks_.clear();
  }

 private:
  /// A rewind comes before the others; none of them: flush.
  struct Item {
    std::optional<int64_t> rewind{};
    std::optional<MetricsLine> line{};
    std::optional<nlohmann::json> sample{};
    std::shared_ptr<std::promise<void>> flushed{};
  };

  void push(Item item) {
    if (!thread_.joinable()) return handle(item);
    // A rewind that there was no room for comes with the next item that there is room for.
    if (owed_rewind_) item.rewind = std::min(*owed_rewind_, item.rewind.value_or(*owed_rewind_));
    owed_rewind_.reset();
    const bool counts = item.line && !item.line->running();
    if (waiting_ < kMostWaiting) {
      ++waiting_;
      queue_.push(std::move(item));
      return;
    }
    owed_rewind_ = item.rewind;
    if (counts) ++dropped_;
  }

  void run() {
    while (true) {
      if (!queue_.wait_for(kIdle)) {
        flush();
        continue;
      }
      const auto item = queue_.pop();
      if (!item) return;
      --waiting_;
      handle(*item);
    }
  }

  void handle(const Item& item) {
    // Said here: whoever trains does not wait for a terminal, either.
    if (dropped_ > 0 && !std::exchange(told_of_drops_, true))
      log::warn(
          "Metrics come faster than they can be written (is the terminal stopped, or a disk slow?): "
          "lines are left out, training goes on.");
    if (item.rewind) {
      for_each_sink([&](Sink& sink) { sink.rewind(*item.rewind); });
      flushed_step_ = std::min(flushed_step_, *item.rewind);
      unflushed_ = true;
    }
    if (!item.line && !item.sample) {
      flush();
      if (item.flushed) item.flushed->set_value();
      return;
    }
    unflushed_ = true;
    if (item.sample) return for_each_sink([&](Sink& sink) { sink.sample(*item.sample); });
    for_each_sink([&](Sink& sink) { sink.write(*item.line); });
    const int64_t step = item.line->values.value("global_step", int64_t{0});
    const bool due = flush_steps_ > 0 && step / flush_steps_ != flushed_step_ / flush_steps_;
    if (due) flushed_step_ = step;
    // Who follows the file sees a line after a second at most, however quickly others come.
    if (due || std::chrono::steady_clock::now() - flushed_ >= kIdle) flush();
  }

  void flush() {
    if (unflushed_) for_each_sink([](Sink& sink) { sink.flush(); });
    unflushed_ = false;
    flushed_ = std::chrono::steady_clock::now();
  }

  template <class Call>
  void for_each_sink(const Call& call) {
    for (auto& sink : sinks_) {
      try {
        if (sink) call(*sink);
      } catch (const std::exception& error) {
        log::warn("{} gets no more metrics, training goes on: {}", sink->name(), error.what());
        sink.reset();
      }
    }
  }

  const int64_t flush_steps_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  int64_t flushed_step_ = 0;
  bool unflushed_ = false;
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
  std::optional<int64_t> owed_rewind_;  // of the thread that trains
  std::atomic<size_t> waiting_ = 0;     // items in the queue, which is never full
  std::atomic<int64_t> dropped_ = 0;    // lines
  bool told_of_drops_ = false;
  BoundedQueue<Item> queue_{kMostWaiting + 1};
  std::thread thread_;
};

Metrics::Metrics(const LogConfig& config, std::vector<std::unique_ptr<Sink>> sinks)
    : reduced_(config.reduced_logging), writer_(std::make_unique<Writer>(config, std::move(sinks))) {}
Metrics::~Metrics() = default;

void Metrics::interval(const IntervalReport& report) {
  const auto loss = report.number("training/loss");
  if (loss && !report.running) losses_.emplace_back(report.step, *loss);
  writer_->push_line({values_of(report, reduced_), report});
}
void Metrics::line(const nlohmann::json& line) { writer_->push_line({line}); }
void Metrics::sample(nlohmann::json sample) { writer_->push_sample(std::move(sample)); }
void Metrics::rewind(int64_t step) {
  std::erase_if(losses_, [&](const auto& loss) { return loss.first > step; });
  writer_->push_rewind(step);
}
void Metrics::flush(std::chrono::milliseconds most) { writer_->push_flush(most); }
std::vector<double> Metrics::finish() {
  writer_->stop(/*failed=*/false);
  std::vector<double> losses;
  for (const auto& [step, loss] : losses_) losses.push_back(loss);
  return losses;
}

}  // namespace tightloop
