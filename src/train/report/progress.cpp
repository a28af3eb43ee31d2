#include "train/report/progress.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/engine/loss.h"

namespace tightloop {

namespace {

void add(std::vector<double>& sums, const std::vector<double>& more) {
  sums.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

/// What is left of a step to report where its loss is not finite: that it was, and its times.
StepSums without_loss(StepSums sums) {
  for (int column = 0; column < LossBuffer::kSums; ++column)
    if (column != LossBuffer::kPasses) sums.values[column] = 0;
  for (auto* parts : {&sums.source_loss, &sums.source_tokens, &sums.source_correct})
    std::ranges::fill(*parts, 0.0);
  return sums;
}

}  // namespace

std::optional<IntervalReport> Progress::arrived(const StepSums& given) {
  const StepSums sums = std::isfinite(given[LossBuffer::kLoss]) ? given : without_loss(given);
  if (ahead_.empty() || ahead_.front().start.step != sums.step)
    throw std::logic_error("sums of a step arrived that is not the next one");
  const auto [start, ends_line] = ahead_.front();
  ahead_.pop_front();
  loss_ += sums[LossBuffer::kLoss], tokens_ += sums[LossBuffer::kTokens];
  for (int column = 0; column < LossBuffer::kColumns; ++column) steps_with_[column] += sums[column] != 0;
  ++line_.steps;
  empty_batches_ += start.empty_batches;
  line_.tokens += start.tokens;
  line_.waited += start.waited;
  double timed = 0;
  for (int part = LossBuffer::kIdle; part <= LossBuffer::kUpdate; ++part) timed += sums[part];
  const double seconds = timed > 0 ? timed : start.seconds;
  line_.seconds += seconds;
  line_.queue.ready += start.queue.ready, line_.queue.taken += start.queue.taken;
  epoch_.loss += sums[LossBuffer::kLoss], epoch_.tokens += sums[LossBuffer::kTokens];
  epoch_.seconds += seconds;
  if (std::floor(start.epoch) > std::floor(passes_)) {
    if (epoch_.whole) line_.ended = epoch_;
    epoch_ = {};
  }
  passes_ = start.epoch;
  if (start.by_layer) line_.grad_norms = sums.grad_norms, line_.update_ratios = sums.update_ratios;
  add(line_.values, sums.values);
  double checked = 0;
  for (const double tokens : sums.source_tokens) checked += tokens;
  line_.checked += checked;
  add(line_.source_loss, sums.source_loss);
  add(line_.source_tokens, sums.source_tokens);
  add(line_.source_correct, sums.source_correct);
  add(line_.expert_loads, sums.expert_loads);
  if (!ends_line) return {};
  shown_ = report(start, sums);
  line_ = {};
  return shown_;
}

nlohmann::json Progress::totals() const {
  return {{"loss", loss_},
          {"tokens", tokens_},
          {"whole", whole_},
          {"passes", passes_},
          {"skipped_steps", steps_with_[LossBuffer::kSkipped]},
          {"empty_batches", empty_batches_},
          {"epoch",
           {{"loss", epoch_.loss},
            {"tokens", epoch_.tokens},
            {"seconds", epoch_.seconds},
            {"whole", epoch_.whole}}}};
}

void Progress::go_on_from(const nlohmann::json& totals) {
  if (totals.is_null()) {
    whole_ = epoch_.whole = false, passes_ = NAN;
    return;
  }
  const auto& epoch = totals.at("epoch");
  loss_ = totals.at("loss"), tokens_ = totals.at("tokens"), whole_ = totals.at("whole");
  passes_ = totals.at("passes");
  steps_with_[LossBuffer::kSkipped] = totals.value("skipped_steps", int64_t{0});
  empty_batches_ = totals.value("empty_batches", int64_t{0});
  epoch_ = {epoch.at("loss"), epoch.at("tokens"), epoch.at("seconds"), epoch.at("whole")};
}

IntervalReport Progress::running() const {
  IntervalReport report{.step = ahead_.empty() ? shown_.step : ahead_.back().start.step,
                        .total_steps = total_steps_,
                        .running = true,
                        .due = {}};
  for (const char* metric : {"training/loss", "training/lr", "perf/step_time", "perf/tokens_per_second"})
    if (const auto shown = shown_.number(metric)) report.set(metric, *shown);
  if (!ahead_.empty()) report.set("training/lr", ahead_.back().start.lr);
  if (line_.values[LossBuffer::kTokens] > 0)
    report.set("training/loss", line_.values[LossBuffer::kLoss] / line_.values[LossBuffer::kTokens]);
  if (!any_line() && line_.steps > 0) {
    const double seconds = std::max(line_.seconds, 1e-9);
    report.set("perf/step_time", seconds / static_cast<double>(line_.steps));
    report.set("perf/tokens_per_second", static_cast<double>(line_.tokens) / seconds);
  }
  return report;
}

IntervalReport Progress::report(const StepStart& start, const StepSums& last) const {
  const double seconds = std::max(line_.seconds, 1e-9);
  IntervalReport report{.step = start.step, .total_steps = total_steps_};
  report.supervised = line_.values[LossBuffer::kTokens];
  report.set("training/lr", start.lr);
  report.set("training/epoch", start.epoch);
  report.set("training/empty_batches", empty_batches_);
  report.set("perf/step_time", seconds / static_cast<double>(line_.steps));
  report.set("perf/tokens_per_second", static_cast<double>(line_.tokens) / seconds);
  report.set("perf/data_wait", std::min(1.0, line_.waited / seconds));
  if (line_.queue.taken > 0)
    report.set("perf/loader_ready",
               static_cast<double>(line_.queue.ready) / static_cast<double>(line_.queue.taken));
  if (whole_ && tokens_ > 0) report.set("training/mean_loss", mean_loss());
  if (const double bytes = line_.values[LossBuffer::kBytes]; bytes > 0)
    report.set("training/bits_per_byte", bits_per_byte(line_.values[LossBuffer::kLoss], bytes));
  if (line_.ended) {
    report.set("training/epoch_loss", line_.ended->loss / std::max(1.0, line_.ended->tokens));
    report.set("training/epoch_seconds", line_.ended->seconds);
  }
  set_by_layer("training/grad_norm_by_layer", "training/grad_norm/<parameter>", line_.grad_norms, report);
  set_by_layer("training/update_ratio_by_layer", "training/update_ratio/<parameter>", line_.update_ratios,
               report);
  for (const Metric& metric : metric_table()) reduce(metric, last, report);
  return report;
}

void Progress::set_by_layer(const char* blocks, const char* others, const std::vector<double>& norms,
                            IntervalReport& report) const {
  if (norms.empty()) return;
  nlohmann::json by_name = nlohmann::json::object();
  for (size_t i = layers_.blocks; i < norms.size(); ++i) by_name[layers_.names[i]] = norms[i];
  report.set(blocks, std::vector<double>(norms.begin(), norms.begin() + layers_.blocks));
  report.set(others, std::move(by_name));
}

void Progress::reduce(const Metric& metric, const StepSums& last, IntervalReport& report) const {
  const auto& values = line_.values;
  const double passes = std::max(1.0, values[LossBuffer::kPasses]);
  switch (metric.reduction) {
    case Reduction::kHost:
      return;
    case Reduction::kTokenMean:
      return report.set(metric.name, values[metric.column] / std::max(1.0, values[LossBuffer::kTokens]));
    case Reduction::kCheckedMean:
      if (line_.checked > 0) report.set(metric.name, values[metric.column] / line_.checked);
      return;
    case Reduction::kSourceMean: {
      if (sources_.size() < 2) return;
      const auto& sums = metric.column == LossBuffer::kLoss ? line_.source_loss : line_.source_correct;
      nlohmann::json by_source = nlohmann::json::object();
      for (size_t i = 0; i < sources_.size(); ++i)
        if (line_.source_tokens[i] > 0) by_source[sources_[i]] = sums[i] / line_.source_tokens[i];
      return report.set(metric.name, std::move(by_source));
    }
    case Reduction::kSourceFraction: {
      if (sources_.size() < 2 || line_.checked == 0) return;
      nlohmann::json by_source = nlohmann::json::object();
      for (size_t i = 0; i < sources_.size(); ++i)
        by_source[sources_[i]] = line_.source_tokens[i] / line_.checked;
      return report.set(metric.name, std::move(by_source));
    }
    case Reduction::kStepMean:
      return report.set(metric.name, values[metric.column] / static_cast<double>(line_.steps));
    case Reduction::kExpertMean:
      if (experts_ > 0) report.set(metric.name, values[metric.column] / passes);
      return;
    case Reduction::kExpertLoads: {
      nlohmann::json loads;
      for (size_t i = 0; i < line_.expert_loads.size(); ++i)
        loads[i / experts_].push_back(line_.expert_loads[i] / passes);
      if (!loads.empty()) report.set(metric.name, std::move(loads));
      return;
    }
    case Reduction::kLast:
      return report.set(metric.name, last[metric.column]);
    case Reduction::kStepsSoFar:
      return report.set(metric.name, steps_with_[metric.column]);
  }
}

}  // namespace tightloop
