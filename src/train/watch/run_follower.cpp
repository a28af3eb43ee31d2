#include "train/watch/run_follower.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <utility>

#include "core/files.h"
#include "core/folder_lock.h"
#include "core/io/json_depth.h"
#include "core/terminal/terminal.h"
#include "train/run/best_evaluation.h"
#include "train/run/checkpoint.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

constexpr size_t kNewestLines = 200;
constexpr size_t kMetricsAtOnce = 4096;  // of a run of a million, all at once are gigabytes

double last_change(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

std::map<std::string, std::string> settings_in(const RunFolder& run) {
  if (!is_file(run.config())) return {};
  return values_in(read_file(run.config()));
}

void add_settings(RunView& view, const std::map<std::string, std::string>& settings) {
  const auto value = [&](const char* name) {
    const auto found = settings.find(name);
    const std::string text = found == settings.end() ? std::string() : found->second;
    return text.size() > 1 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                        : text;
  };
  if (view.total_steps == 0) view.total_steps = std::max(0ll, std::atoll(value("train.steps").c_str()));
  if (const auto by = choice_named<BestBy>(value("train.best_by"))) view.best_by = metric_of(*by);
}

/// What no line says: the name, when a file changed last and, of runs without events, the checkpoints.
void add_files(RunView& view, const RunFolder& run) {
  view.name = printable(run.root().filename().string());
  std::ranges::replace_if(
      view.name, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  for (const fs::path& file : {run.config(), run.metrics(), run.events(), run.log()})
    view.news = std::max(view.news, last_change(file));
  if (!view.last_event.empty()) return;
  if (const auto steps = checkpoint_steps(run.checkpoints()); !steps.empty()) {
    view.saved_step = steps.back(), view.step = std::max(view.step, view.saved_step);
    view.saved = last_change(run.checkpoints());
  }
}

/// Of lines of log.txt.
int64_t warnings_in(const std::vector<std::string>& lines) {
  constexpr size_t kLevel = std::string_view("0000-00-00 00:00:00.000 ").size();
  return std::ranges::count_if(lines, [](const std::string& line) {
    return line.size() > kLevel && std::string_view(line).substr(kLevel).starts_with("warning ");
  });
}

void set_state(RunView& view, const RunFolder& run) {
  const bool held = !FolderLock::holder(run.root()).empty();
  view.owner = held ? std::string() : printable(FolderLock::left_elsewhere(run.root()));
  view.state = run_state({.held = held,
                          .left_elsewhere = !view.owner.empty(),
                          .averaged = view.last_event.empty() && is_averaged(run.checkpoints()),
                          .last_event = view.last_event,
                          .step = view.step,
                          .steps = view.total_steps});
}

/// Events and metrics in the order of time. Metrics of older versions have none, and come after the event
/// that began the run.
class LineOrder {
 public:
  LineOrder(RunView& view, std::vector<nlohmann::json> events) : view_(view), events_(std::move(events)) {}
  void add_metrics(const nlohmann::json& line) {
    add_events_until(number_in(line, "time").value_or(INFINITY));
    view_.add_metrics(line);
  }
  void finish() { add_events_until(INFINITY); }

 private:
  void add_events_until(double time) {
    for (; next_ < events_.size() && number_in(events_[next_], "time").value_or(0) <= time; ++next_)
      view_.add_event(events_[next_]);
  }

  RunView& view_;
  const std::vector<nlohmann::json> events_;
  size_t next_ = 0;
};

}  // namespace

RunFollower::RunFollower(const fs::path& root)
    : run_(root), metrics_(run_.metrics()), events_(run_.events()), log_(run_.log()) {}

bool RunFollower::read_log(RunView& view) {
  const auto lines = log_.read();
  if (log_.restarted()) view.warnings = 0;
  view.warnings += warnings_in(lines);
  if (!lines.empty()) view.news = std::max(view.news, last_change(run_.log()));
  return !lines.empty();
}

void RunFollower::read_settings(RunView& view) {
  const double changed = last_change(run_.config());
  if (std::exchange(settings_changed_, changed) != changed) settings_ = settings_in(run_);
  add_settings(view, settings_);
}

bool RunFollower::read_events(RunView& view) {
  const auto events = events_.read();
  for (const auto& event : events) view.add_event(event);
  read_settings(view);
  return read_log(view) || !events.empty();
}

bool RunFollower::read(RunView& view) {
  bool changed = false, replaced = std::exchange(first_, false);
  auto lines = metrics_.read(kMetricsAtOnce);  // before the events, which tell of what is in them
  if (metrics_.restarted()) view.forget_metrics();
  auto events = events_.read();
  if (events_.restarted()) view = {}, replaced = true;
  changed |= !events.empty();
  LineOrder order(view, std::move(events));
  for (; !lines.empty(); lines = metrics_.read(kMetricsAtOnce)) {
    if (metrics_.restarted()) view.forget_metrics();
    for (const auto& line : lines) order.add_metrics(line);
    changed = true;
  }
  order.finish();
  changed |= read_log(view);
  if (replaced) add_files(view, run_);
  read_settings(view);
  const RunState before = view.state;
  set_state(view, run_);
  return changed || view.state != before;
}

RunView summary_of(const fs::path& root) {
  const RunFolder run(root);
  RunView view;
  LineOrder order(view, JsonLinesReader(run.events()).read());
  const auto add = [&](const std::string& line) {
    const auto parsed = nlohmann::json::parse(shallow_json(line), nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) order.add_metrics(parsed);
  };
  LinesReader reader(run.metrics());
  std::deque<std::string> newest;
  for (auto lines = reader.read(kMetricsAtOnce); !lines.empty(); lines = reader.read(kMetricsAtOnce))
    for (std::string& line : lines) {
      newest.push_back(std::move(line));
      if (newest.size() <= kNewestLines) continue;
      if (newest.front().find("\"eval/") != std::string::npos) add(newest.front());
      newest.pop_front();
    }
  for (const std::string& line : newest) add(line);
  order.finish();
  view.warnings = warnings_in(LinesReader(run.log()).read());
  add_files(view, run);
  add_settings(view, settings_in(run));
  set_state(view, run);
  return view;
}

}  // namespace tightloop
