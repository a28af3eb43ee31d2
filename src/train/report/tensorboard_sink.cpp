#include "train/report/tensorboard_sink.h"

#include <fmt/format.h>

#include "train/report/chart_values.h"
#include "train/run/run_events.h"

namespace tightloop {

namespace {

/// As a block of code, in which nothing is markup.
std::string as_markdown(std::string_view title, const std::string& text) {
  std::string block = fmt::format("**{}**\n\n    ", title);
  for (const char letter : text) block += letter == '\n' ? std::string("\n    ") : std::string(1, letter);
  return block + "\n\n";
}

}  // namespace

TensorboardSink::TensorboardSink(const std::filesystem::path& folder, int64_t resumed_step)
    : folder_(folder), file_(folder, unix_time(), resumed_step > 0 ? resumed_step + 1 : 0) {}

void TensorboardSink::write(const MetricsLine& line) {
  if (line.running()) return;
  const ChartValues values = chart_values(line.values);
  std::vector<std::string> summaries;
  for (const auto& [name, number] : values.numbers) summaries.push_back(scalar_summary(name, number));
  for (const auto& [name, list] : values.lists) summaries.push_back(histogram_summary(name, list));
  if (summaries.empty()) return;
  file_.add(line.values.value("time", unix_time()), line.values.value("global_step", int64_t{0}), summaries);
}

void TensorboardSink::rewind(int64_t step) {
  file_.flush();
  file_ = EventFile(folder_, unix_time(), step + 1);
  sampled_step_ = -1;
}

// TensorBoard keeps one text a step and tag, so those of a step are numbered.
void TensorboardSink::sample(const nlohmann::json& sample) {
  const auto step = sample.value("global_step", int64_t{0});
  if (step != sampled_step_) samples_.clear();
  sampled_step_ = step;
  const auto kind = sample.value("kind", std::string("text"));
  std::string markdown;
  for (const char* part : {"prompt", "text", "reference"})
    if (sample.contains(part)) markdown += as_markdown(part, sample.at(part).get<std::string>());
  file_.add(sample.value("time", unix_time()), step,
            {text_summary(fmt::format("samples/{}/{}", kind, ++samples_[kind]), markdown)});
}

}  // namespace tightloop
