#include "train/report/run_log.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <ranges>

#include "core/files.h"
#include "core/folder_lock.h"
#include "train/run/run_events.h"
#include "train/run/run_folder.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

std::optional<double> number_in(const nlohmann::json& line, const std::string& metric) {
  const auto found = line.find(metric);
  if (found == line.end() || !found->is_number()) return {};
  return found->get<double>();
}

}  // namespace

RunState run_state(const std::string& holder, const std::vector<nlohmann::json>& events, bool any_metrics) {
  if (!holder.empty()) return RunState::kRunning;
  if (events.empty()) return any_metrics ? RunState::kStopped : RunState::kNew;
  const auto& name = events.back().find("event");
  const auto event = name != events.back().end() && name->is_string()
                         ? choice_named<RunEvent>(name->get<std::string>())
                         : std::nullopt;
  if (event == RunEvent::kFinished) return RunState::kFinished;
  if (event == RunEvent::kStopped) return RunState::kStopped;
  return RunState::kCrashed;
}

std::vector<nlohmann::json> JsonLinesReader::read(size_t most) {
  std::vector<nlohmann::json> lines;
  restarted_ = false;
  struct stat now {};
  if (::stat(file_.c_str(), &now) != 0) return lines;
  if (now.st_ino != inode_ || static_cast<uint64_t>(now.st_size) < offset_) {
    restarted_ = offset_ > 0;
    offset_ = 0, inode_ = now.st_ino, bad_lines_ = 0;
  }
  std::ifstream in(file_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset_));
  for (std::string line; lines.size() < most && std::getline(in, line) && !in.eof();) {
    offset_ += line.size() + 1;
    auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object())
      lines.push_back(std::move(parsed));
    else
      ++bad_lines_;
  }
  return lines;
}

int64_t RunLog::last_step() const {
  int64_t step = 0;
  for (const auto* lines : {&metrics, &events})
    if (!lines->empty()) step = std::max(step, lines->back().value("global_step", int64_t{0}));
  return step;
}

int64_t RunLog::total_steps() const {
  const auto found = settings.find("train.steps");
  return found == settings.end() ? 0 : std::atoll(found->second.c_str());
}

std::optional<double> RunLog::last(const std::string& metric) const {
  for (const auto& line : metrics | std::views::reverse)
    if (const auto value = number_in(line, metric)) return value;
  return {};
}

std::vector<std::pair<double, double>> RunLog::curve(const std::string& metric) const {
  std::vector<std::pair<double, double>> points;
  for (const auto& line : metrics)
    if (const auto value = number_in(line, metric))
      points.emplace_back(line.value("global_step", 0.0), *value);
  return points;
}

RunLog read_run_log(const fs::path& root) {
  const RunFolder run(root);
  RunLog log;
  log.root = root;
  log.holder = FolderLock::holder(root);
  if (is_file(run.config())) log.settings = values_in(read_file(run.config()));
  log.metrics = JsonLinesReader(run.metrics()).read();
  log.events = JsonLinesReader(run.events()).read();
  log.samples = JsonLinesReader(run.samples()).read();
  log.state = run_state(log.holder, log.events, !log.metrics.empty());
  return log;
}

}  // namespace tightloop
