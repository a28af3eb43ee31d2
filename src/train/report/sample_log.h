#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/choice.h"

namespace tightloop {

/// What a model was asked for.
enum class SampleKind { kContinuation, kAnswer, kTranslation };
template <>
inline constexpr auto kChoices<SampleKind> = std::to_array<Choice<SampleKind>>({
    {SampleKind::kContinuation, "continuation"},
    {SampleKind::kAnswer, "answer"},
    {SampleKind::kTranslation, "translation"},
});

/// What a model in training makes of a prompt.
struct TrainingSample {
  SampleKind kind = SampleKind::kContinuation;
  std::string prompt{}, text{};
  std::optional<std::string> reference{};  // how it goes on in the held-out data
};

/// samples.jsonl of a run: an object a line, {"time", "global_step", "kind", "prompt", "text", "reference"}.
/// A run that goes on after `resumed_step` drops those of later steps; a step that has samples gets no
/// others.
class SampleLog {
 public:
  SampleLog(std::filesystem::path file, int64_t resumed_step);
  /// The run went back to a step: those of later ones go, as far as that can be done.
  void rewind(int64_t step);
  /// Appends them, all or none, and gives the lines; a checkpoint error where they cannot be written.
  std::vector<nlohmann::json> add(int64_t step, const std::vector<TrainingSample>& samples);

 private:
  const std::filesystem::path file_;
  int64_t last_step_ = -1;
};

/// One line for people, "reverse stone = -> enots", of some 200 characters at most.
std::string sample_text(const TrainingSample& sample);

}  // namespace tightloop
