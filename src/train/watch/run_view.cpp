#include "train/watch/run_view.h"

#include <algorithm>
#include <cmath>

#include "train/run/run_events.h"

namespace tightloop {

namespace {

constexpr size_t kPaceLines = 20, kPaceKnown = 5;

bool is_metric(std::string_view name) { return name != "time" && name != "global_step"; }

/// Of the metrics that train.best_by may name, the loss alone is better where it is lower.
bool is_better(std::string_view metric, double value, double than) {
  return metric == "eval/loss" ? value < than : value > than;
}

}  // namespace

void RunView::add_metrics(const nlohmann::json& line) {
  running = false;
  step = std::max(step, count_in(line, "global_step"));
  for (const auto& [name, value] : line.items()) {
    const auto number = number_in(line, name);
    if (!number || !is_metric(name)) continue;
    latest[name] = *number;
    if (!name.starts_with("eval/") || !std::isfinite(*number) || count_in(line, "global_step") <= best_after_)
      continue;
    const auto found = bests.find(name);
    if (found == bests.end() || is_better(name, *number, found->second.second))
      bests[name] = {count_in(line, "global_step"), *number};
  }
  if (const auto loss = number_in(line, "training/loss")) losses.push_back(*loss);
  if (const auto time = number_in(line, "time")) {
    news = std::max(news, *time);
    pace_.emplace_back(*time, step);
    if (pace_.size() > kPaceLines) pace_.pop_front();
  }
}

void RunView::add_report(const IntervalReport& report) {
  nlohmann::json values = report.values;
  spell_non_finite(values);
  values["global_step"] = report.step, values["time"] = unix_time();
  if (report.running) {
    step = std::max(step, report.step);
    for (const auto& [name, value] : values.items())
      if (const auto number = number_in(values, name); number && is_metric(name)) latest[name] = *number;
  } else {
    add_metrics(values);
  }
  running = report.running;
  total_steps = report.total_steps;
}

void RunView::add_event(const nlohmann::json& line) {
  last_event = text_in(line, "event"), text = text_in(line, "text");
  const double time = number_in(line, "time").value_or(0);
  const int64_t at = count_in(line, "global_step");
  news = std::max(news, time);
  switch (choice_named<RunEvent>(last_event).value_or(RunEvent::kSkipped)) {
    case RunEvent::kStarted:
    case RunEvent::kResumed:
      started = time, step = from_ = at;
      failure.clear();
      if (line.contains("best_after")) {
        best_after_ = count_in(line, "best_after");
        std::erase_if(bests, [&](const auto& best) { return best.second.first <= best_after_; });
      }
      if (saved_step != at) saved_step = at, saved = 0;
      if (const int64_t steps = count_in(line, "steps")) total_steps = steps;
      pace_.clear();
      break;
    case RunEvent::kRolledBack:
      step = from_ = line.contains("to") ? count_in(line, "to") : at;  // `at` is where the spike was
      pace_.clear();
      break;
    case RunEvent::kSaved:
      saved_step = at, saved = time;
      break;
    case RunEvent::kFailed:
      failure = text;
      break;
    default:
      step = std::max(step, at);
  }
}

void RunView::forget_metrics() {
  latest.clear(), losses.clear(), bests.clear(), pace_.clear();
  step = from_;
}

std::optional<double> RunView::number(std::string_view metric) const {
  const auto found = latest.find(metric);
  return found == latest.end() ? std::nullopt : std::optional(found->second);
}

std::string RunView::remark() const {
  if (state == RunState::kElsewhere)
    return owner + " began to write to it: whether that still runs cannot be seen from this machine";
  if (state != RunState::kCrashed) return "";
  return failure.empty() ? "no last word: killed or out of memory" : failure;
}

std::optional<std::pair<int64_t, double>> RunView::best() const {
  const auto found = bests.find(best_by);
  return found == bests.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> RunView::seconds_left() const {
  if (total_steps == 0 || step > total_steps) return {};
  const auto left = static_cast<double>(total_steps - step);
  // By the clock, with what lies between steps, once there are some lines.
  const auto step_time = number("perf/step_time");
  if (step_time && pace_.size() < kPaceKnown) return *step_time * left;
  if (pace_.size() < 2 || pace_.back().second <= pace_.front().second) return {};
  return (pace_.back().first - pace_.front().first) * left /
         static_cast<double>(pace_.back().second - pace_.front().second);
}

nlohmann::json RunView::json(double now) const {
  nlohmann::json json{{"name", name},         {"state", name_of(state)}, {"global_step", step},
                      {"steps", total_steps}, {"warnings", warnings},    {"metrics", latest}};
  if (const auto found = best()) json["best"] = {{"global_step", found->first}, {best_by, found->second}};
  if (saved_step > 0) json["checkpoint"] = {{"global_step", saved_step}};
  if (saved > 0) json["checkpoint"]["time"] = saved;
  if (started > 0) json["started"] = started;
  if (state == RunState::kRunning && started > 0) json["seconds"] = now - started;
  if (const auto left = seconds_left(); left && state == RunState::kRunning) json["seconds_left"] = *left;
  if (state == RunState::kElsewhere) json["owner"] = owner;
  if (!last_event.empty()) json["last_event"] = {{"event", last_event}, {"text", text}};
  if (const std::string why = state == RunState::kCrashed ? remark() : failure; !why.empty())
    json["failure"] = why;
  return json;
}

}  // namespace tightloop
