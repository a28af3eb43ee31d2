#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "core/choice.h"

namespace tightloop {

/// What may happen in a run besides a step.
enum class RunEvent {
  kStarted,
  kResumed,
  kSaved,
  kSaveFailed,
  kSkipped,
  kSpike,
  kRolledBack,
  kStopped,
  kFinished,
  kFailed
};
template <>
inline constexpr auto kChoices<RunEvent> = std::to_array<Choice<RunEvent>>({
    {RunEvent::kStarted, "started"},
    {RunEvent::kResumed, "resumed"},
    {RunEvent::kSaved, "saved", "a checkpoint is on disk"},
    {RunEvent::kSaveFailed, "save_failed", "a checkpoint could not be written; older ones are untouched"},
    {RunEvent::kSkipped, "skipped", "a step made no update"},
    {RunEvent::kSpike, "spike", "a loss far above those before it"},
    {RunEvent::kRolledBack, "rolled_back", "the run went back to a checkpoint"},
    {RunEvent::kStopped, "stopped", "before its last step: by a signal, train.stop_at or train.patience"},
    {RunEvent::kFinished, "finished", "the last step is done"},
    {RunEvent::kFailed, "failed", "with an error"},
});

/// Seconds since 1970, to the millisecond: how lines that a run writes say when.
double unix_time();

/// events.jsonl of a run: one object a line, {"time": 1763386000.123, "global_step": 300, "event": "saved",
/// "text": "for people", ...}, written at once, from any thread. A line that cannot be written (a full disk)
/// is said once and costs nothing else. Lines stay when a run is resumed at an earlier step: they are in the
/// order of time.
class RunEvents {
 public:
  explicit RunEvents(std::filesystem::path file) : file_(std::move(file)) {}
  void add(int64_t step, RunEvent event, const std::string& text,
           const nlohmann::json& more = nlohmann::json::object());

 private:
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::ofstream out_;  // from the first line on: another folder that takes the run's name gets none
  bool failed_ = false;
};

}  // namespace tightloop
