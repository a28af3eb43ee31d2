#include "train/report/sample_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/terminal/terminal.h"
#include "train/report/sinks.h"
#include "train/run/run_events.h"
#include "train/watch/run_log.h"

namespace tightloop {

namespace {

constexpr size_t kShownPrompt = 60, kShownText = 130;  // bytes as they are printed

/// Where the first character begins that is not before `at`.
size_t character_from(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  return at;
}

/// In one line, with control characters spelled, which makes a text of them four times as long.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::ranges::replace(text, '\t', ' ');
  return printable(text);
}

}  // namespace

SampleLog::SampleLog(std::filesystem::path file, int64_t resumed_step) : file_(std::move(file)) {
  if (resumed_step > 0) drop_lines_after(file_, resumed_step);
  for (const auto& line : JsonLinesReader(file_).read())
    if (line.contains("global_step")) last_step_ = std::max(last_step_, count_in(line, "global_step"));
}

void SampleLog::rewind(int64_t step) {
  drop_lines_after(file_, step);
  last_step_ = std::min(last_step_, step);
}

std::vector<nlohmann::json> SampleLog::add(int64_t step, const std::vector<TrainingSample>& samples) {
  if (step <= last_step_ || samples.empty()) return {};
  std::string lines;
  std::vector<nlohmann::json> written;
  for (const auto& sample : samples) {
    nlohmann::json line{{"time", unix_time()},
                        {"global_step", step},
                        {"kind", name_of(sample.kind)},
                        {"prompt", sample.prompt},
                        {"text", sample.text}};
    if (sample.reference) line["reference"] = *sample.reference;
    // What a model makes may end within a character.
    const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    written.push_back(nlohmann::json::parse(text));
    lines += text + "\n";
  }
  std::ofstream out(file_, std::ios::app);
  if (!out.write(lines.data(), static_cast<std::streamsize>(lines.size())).flush())
    throw checkpoint_error("cannot write '{}'.", file_.string());
  last_step_ = step;
  return written;
}

std::string sample_text(const TrainingSample& sample) {
  std::string prompt = one_line(sample.prompt), text = one_line(sample.text);
  if (prompt.size() > kShownPrompt)
    prompt = "…" + prompt.substr(character_from(prompt, prompt.size() - kShownPrompt));
  if (text.size() > kShownText) text = text.substr(0, character_from(text, kShownText)) + "…";
  if (sample.text.find_first_not_of(" \t\r\n") == std::string::npos)
    text = sample.text.empty() ? "(nothing)" : "(only spaces)";
  return fmt::format("{} -> {}", prompt, text);
}

}  // namespace tightloop
