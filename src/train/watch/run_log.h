#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// How a run stands.
enum class RunState { kNew, kRunning, kElsewhere, kStopped, kFinished, kCrashed, kAveraged };
template <>
inline constexpr auto kChoices<RunState> = std::to_array<Choice<RunState>>({
    {RunState::kNew, "new", "it has not begun to train"},
    {RunState::kRunning, "running", "a process writes to it"},
    {RunState::kElsewhere, "elsewhere", "a process of another machine wrote to it, and may still do so"},
    {RunState::kStopped, "stopped", "before its last step, with a checkpoint of where it stopped"},
    {RunState::kFinished, "finished", "its last step is done"},
    {RunState::kCrashed, "crashed", "its process ended with an error, or was killed"},
    {RunState::kAveraged, "averaged", "weights made of checkpoints of a run; there is no training to go on"},
});

/// What a run's state is known by.
struct RunSigns {
  bool held = false;            // a process holds its folder
  bool left_elsewhere = false;  // FolderLock::left_elsewhere()
  bool averaged = false;        // is_averaged()
  std::string_view last_event;  // runs of older versions have none,
  int64_t step = 0, steps = 0;  // and have finished where they were at their last step
};
RunState run_state(const RunSigns& signs);

/// Whether the weights of a run, by its newest checkpoint, were made by 'tightloop average'.
bool is_averaged(const std::filesystem::path& checkpoints);

/// The lines of a file that another process may be writing: read() gives those that came since the last one,
/// or the next `most` of them. A line that is not whole yet is left for the next time. A file that became
/// shorter or was replaced (a resumed run drops lines) is read from its start, and `restarted` says so.
class LinesReader {
 public:
  explicit LinesReader(std::filesystem::path file) : file_(std::move(file)) {}
  std::vector<std::string> read(size_t most = std::numeric_limits<size_t>::max());
  bool restarted() const { return restarted_; }

 private:
  const std::filesystem::path file_;
  uint64_t offset_ = 0, inode_ = 0;
  bool restarted_ = false;
};

/// The same of JSON lines; a line that is no object is left out.
class JsonLinesReader {
 public:
  explicit JsonLinesReader(std::filesystem::path file) : lines_(std::move(file)) {}
  std::vector<nlohmann::json> read(size_t most = std::numeric_limits<size_t>::max());
  bool restarted() const { return restarted_; }
  /// Lines so far that were left out.
  size_t bad_lines() const { return bad_lines_; }

 private:
  LinesReader lines_;
  size_t bad_lines_ = 0;
  bool restarted_ = false;
};

/// A number of a line, also one that is spelled ("NaN"); nothing where it has none of that name.
std::optional<double> number_in(const nlohmann::json& line, const std::string& name);
/// A whole number that may be a count; 0 where there is none.
int64_t count_in(const nlohmann::json& line, const std::string& name);
/// A text; empty where there is none.
std::string text_in(const nlohmann::json& line, const std::string& name);

/// What the last event says happened; empty where there is none, "unknown" where it does not say.
std::string last_event_of(const std::vector<nlohmann::json>& events);

}  // namespace tightloop
