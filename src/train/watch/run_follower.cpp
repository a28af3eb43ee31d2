#include "train/watch/run_follower.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "core/files.h"
#include "core/folder_lock.h"
#include "core/terminal/terminal.h"
#include "train/run/checkpoint.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

constexpr size_t kNewestLines = 200;

double last_change(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

/// What no line says: the name, when a file changed last and, of runs without events, steps and checkpoints.
void add_files(RunView& view, const RunFolder& run) {
  view.name = printable(run.root().filename().string());
  std::ranges::replace_if(
      view.name, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  for (const fs::path& file : {run.config(), run.metrics(), run.events(), run.log()})
    view.news = std::max(view.news, last_change(file));
  if (view.total_steps == 0 && is_file(run.config())) {
    const auto settings = values_in(read_file(run.config()));
    const auto found = settings.find("train.steps");
    if (found != settings.end()) view.total_steps = std::max(0ll, std::atoll(found->second.c_str()));
  }
  if (!view.last_event.empty()) return;
  if (const auto steps = checkpoint_steps(run.checkpoints()); !steps.empty()) {
    view.saved_step = steps.back(), view.step = std::max(view.step, view.saved_step);
    view.saved = last_change(run.checkpoints());
  }
}

void set_state(RunView& view, const RunFolder& run) {
  view.state =
      run_state(!FolderLock::holder(run.root()).empty(), view.last_event, view.step, view.total_steps);
}

/// In the order of time. Metrics of older versions have none, and come after the event that began the run.
void add_lines(RunView& view, const std::vector<nlohmann::json>& metrics,
               const std::vector<nlohmann::json>& events) {
  auto event = events.begin();
  for (const auto& line : metrics) {
    const double time = number_in(line, "time").value_or(INFINITY);
    for (; event != events.end() && number_in(*event, "time").value_or(0) <= time; ++event)
      view.add_event(*event);
    view.add_metrics(line);
  }
  for (; event != events.end(); ++event) view.add_event(*event);
}

}  // namespace

RunFollower::RunFollower(const fs::path& root)
    : run_(root), metrics_(run_.metrics()), events_(run_.events()), log_(run_.log()) {}

bool RunFollower::read_log(RunView& view) {
  constexpr size_t kLevel = std::string_view("0000-00-00 00:00:00.000 ").size();
  const auto lines = log_.read();
  if (log_.restarted()) view.warnings = 0;
  view.warnings += std::ranges::count_if(lines, [](const std::string& line) {
    return line.size() > kLevel && std::string_view(line).substr(kLevel).starts_with("warning ");
  });
  return !lines.empty();
}

bool RunFollower::read_events(RunView& view) {
  const auto events = events_.read();
  for (const auto& event : events) view.add_event(event);
  return read_log(view) || !events.empty();
}

bool RunFollower::read(RunView& view) {
  const auto metrics = metrics_.read();
  if (metrics_.restarted()) view.forget_metrics();
  const auto events = events_.read();
  if (events_.restarted()) view = {};
  add_lines(view, metrics, events);
  const bool log = read_log(view);
  if (std::exchange(first_, false) || view.total_steps == 0) add_files(view, run_);
  const RunState before = view.state;
  set_state(view, run_);
  return !metrics.empty() || !events.empty() || log || view.state != before;
}

RunView summary_of(const fs::path& root) {
  const RunFolder run(root);
  std::vector<nlohmann::json> metrics;
  const auto lines = LinesReader(run.metrics()).read();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i + kNewestLines < lines.size() && lines[i].find("\"eval/") == std::string::npos) continue;
    auto parsed = nlohmann::json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) metrics.push_back(std::move(parsed));
  }
  RunView view;
  add_lines(view, metrics, JsonLinesReader(run.events()).read());
  add_files(view, run);
  set_state(view, run);
  return view;
}

}  // namespace tightloop
