#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// How a run stands.
enum class RunState { kNew, kRunning, kStopped, kFinished, kCrashed };
template <>
inline constexpr auto kChoices<RunState> = std::to_array<Choice<RunState>>({
    {RunState::kNew, "new", "it has not begun to train"},
    {RunState::kRunning, "running", "a process writes to it"},
    {RunState::kStopped, "stopped", "before its last step, with a checkpoint of where it stopped"},
    {RunState::kFinished, "finished", "its last step is done"},
    {RunState::kCrashed, "crashed", "its process ended with an error, or was killed"},
});

/// The objects of a file of JSON lines that another process may be writing: read() gives those that came
/// since the last one, or the next `most` of them. A line that is not whole yet is left for the next time; one
/// that is no object is left out. A file that became shorter or was replaced (a resumed run drops lines) is
/// read from its start, and `restarted` says so.
class JsonLinesReader {
 public:
  explicit JsonLinesReader(std::filesystem::path file) : file_(std::move(file)) {}
  std::vector<nlohmann::json> read(size_t most = std::numeric_limits<size_t>::max());
  bool restarted() const { return restarted_; }
  /// Lines so far that were left out.
  size_t bad_lines() const { return bad_lines_; }

 private:
  const std::filesystem::path file_;
  uint64_t offset_ = 0, inode_ = 0;
  size_t bad_lines_ = 0;
  bool restarted_ = false;
};

/// `holder`: who trains it now, if anybody; `events`: those of events.jsonl, which old runs lack.
RunState run_state(const std::string& holder, const std::vector<nlohmann::json>& events, bool any_metrics);

/// What a run has written about itself, also while it goes on.
struct RunLog {
  std::filesystem::path root;
  RunState state = RunState::kNew;
  std::string holder;                                    // who trains it now: "process 4711 on atlas"
  std::map<std::string, std::string> settings;           // "train.lr" to "0.0003", as config.yaml has them
  std::vector<nlohmann::json> metrics, events, samples;  // in the order of the files

  std::string name() const { return root.filename().string(); }
  int64_t last_step() const;    // of the metrics
  int64_t total_steps() const;  // train.steps; 0: not known
  /// The last value of a metric.
  std::optional<double> last(const std::string& metric) const;
  /// Steps and values of a metric, in step order; numbers that are not finite ("NaN") are left out.
  std::vector<std::pair<double, double>> curve(const std::string& metric) const;
};

RunLog read_run_log(const std::filesystem::path& root);

}  // namespace tightloop
