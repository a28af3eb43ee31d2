#include "train/watch/run_log.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/io/json_depth.h"
#include "train/run/checkpoint.h"
#include "train/run/run_events.h"

namespace tightloop {

RunState run_state(const RunSigns& signs) {
  if (signs.held) return RunState::kRunning;
  const auto event = choice_named<RunEvent>(signs.last_event);
  if (event == RunEvent::kFinished) return RunState::kFinished;
  if (event == RunEvent::kStopped) return RunState::kStopped;
  if (event != RunEvent::kFailed && signs.left_elsewhere) return RunState::kElsewhere;
  if (!signs.last_event.empty()) return RunState::kCrashed;
  if (signs.averaged) return RunState::kAveraged;
  if (signs.step == 0) return RunState::kNew;
  return signs.steps > 0 && signs.step >= signs.steps ? RunState::kFinished : RunState::kStopped;
}

bool is_averaged(const std::filesystem::path& checkpoints) try {
  const auto steps = checkpoint_steps(checkpoints);
  return !steps.empty() && read_checkpoint_state(checkpoints, steps.back()).metadata.contains(kAveraged);
} catch (const Error&) {
  return false;  // one that cannot be read says nothing
}

std::vector<std::string> LinesReader::read(size_t most) {
  std::vector<std::string> lines;
  restarted_ = false;
  struct stat now {};
  if (::stat(file_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return lines;  // a pipe would wait
  if (now.st_ino != inode_ || static_cast<uint64_t>(now.st_size) < offset_) {
    restarted_ = offset_ > 0;
    offset_ = 0, inode_ = now.st_ino;
  }
  if (static_cast<uint64_t>(now.st_size) == offset_) return lines;
  std::ifstream in(file_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset_));
  for (std::string line; lines.size() < most && std::getline(in, line) && !in.eof();) {
    offset_ += line.size() + 1;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<nlohmann::json> JsonLinesReader::read(size_t most) {
  std::vector<nlohmann::json> objects;
  restarted_ = false;
  while (objects.empty()) {
    const auto lines = lines_.read(most);
    if (lines_.restarted()) restarted_ = true, bad_lines_ = 0;
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      auto parsed = nlohmann::json::parse(shallow_json(line), nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object())
        objects.push_back(std::move(parsed));
      else
        ++bad_lines_;
    }
  }
  return objects;
}

std::optional<double> number_in(const nlohmann::json& line, const std::string& name) {
  const auto found = line.find(name);
  if (found == line.end()) return {};
  if (found->is_number()) return found->get<double>();
  if (*found == "NaN") return NAN;
  if (*found == "Infinity") return INFINITY;
  if (*found == "-Infinity") return -INFINITY;
  return {};
}

int64_t count_in(const nlohmann::json& line, const std::string& name) {
  constexpr int64_t kMost = int64_t{1} << 53;  // differences of two are numbers, too
  const auto found = line.find(name);
  const int64_t count = found != line.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  return count >= 0 && count <= kMost ? count : 0;
}

std::string text_in(const nlohmann::json& line, const std::string& name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string last_event_of(const std::vector<nlohmann::json>& events) {
  if (events.empty()) return {};
  const std::string event = text_in(events.back(), "event");
  return event.empty() ? "unknown" : event;
}

}  // namespace tightloop
