#include "train/report/metrics.h"

#include <chrono>
#include <cmath>
#include <exception>
#include <thread>

#include "core/log.h"
#include "core/threads.h"

namespace tightloop {

namespace {

constexpr std::chrono::seconds kIdle{1};

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

void keep_due(IntervalReport& report, const Due& due) {
  report.pace = {report.step_seconds.value_or(0), report.tokens_per_second.value_or(0)};
  if (!due.detail)
    report.grad_norm = report.step_seconds = report.mfu = report.tokens_per_second =
        report.data_wait_share = {};
  if (!due.datasets) {
    report.accuracy = {};
    report.source_losses.clear(), report.source_accuracies.clear();
  }
  if (!due.memory) report.memory = {};
  if (!due.flops) report.flops_per_token = report.counted_flops_per_token = {};
}

nlohmann::json values_of(const IntervalReport& report, bool reduced) {
  nlohmann::json values{{"global_step", report.step}};
  const auto add = [&](const std::string& name, const std::optional<double>& value) {
    if (value) values[name] = *value;
  };
  add("training/loss", report.loss);
  add("training/lr", report.lr);
  add("training/epoch", report.epoch);
  if (reduced) return values;
  values["syncs"] = report.syncs;
  add("training/grad_norm", report.grad_norm);
  add("perf/step_time", report.step_seconds);
  add("perf/mfu", report.mfu);
  add("perf/tokens_per_second", report.tokens_per_second);
  add("perf/data_wait", report.data_wait_share);
  add("perf/flops_per_token", report.flops_per_token);
  add("perf/flops_per_token_counted", report.counted_flops_per_token);
  if (report.memory) {
    values["memory/allocated_gib"] = gib(report.memory->allocated);
    values["memory/reserved_gib"] = gib(report.memory->reserved);
    values["memory/peak_gib"] = gib(report.memory->allocated_peak);
  }
  add("training/accuracy", report.accuracy);
  for (const auto& [source, loss] : report.source_losses) values["training/loss/" + source] = loss;
  for (const auto& [source, share] : report.source_accuracies) values["training/accuracy/" + source] = share;
  add("training/balance_loss", report.balance_loss);
  if (!report.expert_loads.empty()) values["training/expert_loads"] = report.expert_loads;
  add("training/loss_scale", report.loss_scale);
  if (report.empty_batches > 0) values["training/empty_batches"] = report.empty_batches;
  if (report.skipped_steps > 0) values["training/skipped_steps"] = report.skipped_steps;
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
  ~Writer() { stop(); }

  /// Without a line: flush.
  void push(std::optional<MetricsLine> line) {
    if (line) spell_non_finite(line->values);
    if (thread_.joinable()) {
      queue_.push(std::move(line));
    } else {
      handle(line);
    }
  }
  void stop() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
    flush();
    sinks_.clear();
  }

 private:
  void run() {
    while (true) {
      if (!queue_.wait_for(kIdle)) {
        flush();
        continue;
      }
      const auto line = queue_.pop();
      if (!line) return;
      handle(*line);
    }
  }

  void handle(const std::optional<MetricsLine>& line) {
    if (!line) return flush();
    for_each_sink([&](Sink& sink) { sink.write(*line); });
    unflushed_ = true;
    const int64_t step = line->values.value("global_step", int64_t{0});
    if (flush_steps_ > 0 && step / flush_steps_ != flushed_step_ / flush_steps_) {
      flushed_step_ = step;
      flush();
    }
  }

  void flush() {
    if (unflushed_) for_each_sink([](Sink& sink) { sink.flush(); });
    unflushed_ = false;
  }

  template <class Call>
  void for_each_sink(const Call& call) {
    for (auto& sink : sinks_) {
      try {
        if (sink) call(*sink);
      } catch (const std::exception& error) {
        log::warn("Metrics are no longer kept there, training goes on: {}", error.what());
        sink.reset();
      }
    }
  }

  const int64_t flush_steps_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  int64_t flushed_step_ = 0;
  bool unflushed_ = false;
  BoundedQueue<std::optional<MetricsLine>> queue_{4096};
  std::thread thread_;
};

Metrics::Metrics(const LogConfig& config, std::vector<std::unique_ptr<Sink>> sinks)
    : reduced_(config.reduced_logging), writer_(std::make_unique<Writer>(config, std::move(sinks))) {}
Metrics::~Metrics() = default;

void Metrics::interval(const IntervalReport& report) {
  if (report.loss && !report.running) losses_.push_back(*report.loss);
  writer_->push(MetricsLine{values_of(report, reduced_), report});
}
void Metrics::line(const nlohmann::json& line) { writer_->push(MetricsLine{line}); }
void Metrics::flush() { writer_->push(std::nullopt); }
std::vector<double> Metrics::finish() {
  writer_->stop();
  return losses_;
}

}  // namespace tightloop
