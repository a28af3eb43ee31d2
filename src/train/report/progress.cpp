#include "train/report/progress.h"

#include <algorithm>
#include <stdexcept>

namespace tightloop {

namespace {

void add(std::vector<double>& sums, const std::vector<double>& more) {
  sums.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

}  // namespace

std::optional<IntervalReport> Progress::arrived(const StepSums& sums) {
  if (ahead_.empty() || ahead_.front().start.step != sums.step)
    throw std::logic_error("sums of a step arrived that is not the next one");
  const auto [start, ends_line] = ahead_.front();
  ahead_.pop_front();
  loss_ += sums[LossBuffer::kLoss], tokens_ += sums[LossBuffer::kTokens];
  skipped_ += sums[LossBuffer::kSkipped] != 0;
  ++line_.steps;
  line_.tokens += start.tokens;
  line_.waited += start.waited;
  double timed = 0;
  for (int part = LossBuffer::kIdle; part <= LossBuffer::kUpdate; ++part) timed += sums[part];
  line_.seconds += timed > 0 ? timed : start.seconds;
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

IntervalReport Progress::running() const {
  IntervalReport report{.step = ahead_.empty() ? shown_.step : ahead_.back().start.step,
                        .total_steps = total_steps_,
                        .running = true,
                        .loss = shown_.loss,
                        .lr = ahead_.empty() ? shown_.lr : ahead_.back().start.lr};
  if (line_.values[LossBuffer::kTokens] > 0)
    report.loss = line_.values[LossBuffer::kLoss] / line_.values[LossBuffer::kTokens];
  report.pace = {shown_.step_seconds.value_or(0), shown_.tokens_per_second.value_or(0)};
  if (report.pace.step_seconds == 0 && line_.steps > 0) {  // before the first line
    const double seconds = std::max(line_.seconds, 1e-9);
    report.pace = {seconds / static_cast<double>(line_.steps), static_cast<double>(line_.tokens) / seconds};
  }
  return report;
}

IntervalReport Progress::report(const StepStart& start, const StepSums& last) const {
  const auto& values = line_.values;
  const double seconds = std::max(line_.seconds, 1e-9);
  IntervalReport report{.step = start.step, .total_steps = total_steps_, .lr = start.lr};
  report.supervised = values[LossBuffer::kTokens];
  report.loss = values[LossBuffer::kLoss] / std::max(1.0, values[LossBuffer::kTokens]);
  report.epoch = start.epoch;
  report.grad_norm = last[LossBuffer::kGradNorm];
  report.step_seconds = seconds / static_cast<double>(line_.steps);
  report.tokens_per_second = static_cast<double>(line_.tokens) / seconds;
  report.data_wait_share = std::min(1.0, line_.waited / seconds);
  report.empty_batches = start.empty_batches;
  report.skipped_steps = skipped_;
  if (last[LossBuffer::kLossScale] > 0) report.loss_scale = last[LossBuffer::kLossScale];
  if (line_.checked > 0) report.accuracy = values[LossBuffer::kCorrect] / line_.checked;
  for (size_t i = 0; i < sources_.size() && sources_.size() > 1; ++i) {
    const double tokens = line_.source_tokens[i];
    if (tokens == 0) continue;
    report.source_losses.emplace_back(sources_[i], line_.source_loss[i] / tokens);
    report.source_accuracies.emplace_back(sources_[i], line_.source_correct[i] / tokens);
  }
  const double passes = std::max(1.0, values[LossBuffer::kPasses]);
  if (experts_ == 0) return report;
  report.balance_loss = values[LossBuffer::kBalance] / passes;
  for (size_t first = 0; first < line_.expert_loads.size(); first += experts_) {
    auto& layer = report.expert_loads.emplace_back();
    for (int64_t e = 0; e < experts_; ++e) layer.push_back(line_.expert_loads[first + e] / passes);
  }
  return report;
}

}  // namespace tightloop
