#include "cli/exam_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/terminal/plain.h"
#include "core/terminal/terminal.h"
#include "train/report/metrics.h"

namespace tightloop::cli {

namespace {

std::string bar(double share, int width) {
  const int filled = static_cast<int>(share * width);
  std::string out;
  for (int i = 0; i < width; ++i) out += i < filled ? "█" : "░";
  return in_locale(out);
}

std::string joined_lines(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return printable(text);
}

}  // namespace

std::string to_text(const ExamResult& result, bool colour) {
  std::string out = "Questions answered exactly right\n";
  const bool several = result.samples > 1;
  size_t width = 10;
  for (const auto& [task, score] : result.by_task) width = std::max(width, task.size());
  const auto line = [&](const std::string& task, const ExamResult::Score& score) {
    out += fmt::format("  {:<{}} {:>6.4g}/{:<4} {} {:5.1f} %", printable(task), width, score.right,
                       score.asked, bar(score.accuracy(), 30), 100 * score.accuracy());
    if (several)
      out += fmt::format(", {:.1f} % in one of {} samples", 100 * score.passed_share(), result.samples);
    out += "\n";
  };
  for (const auto& [task, score] : result.by_task) line(task, score);
  line("all", result.all);
  out += "Some answers\n";
  for (const auto& example : result.examples) {
    const std::string answer = joined_lines(example.answer);
    out +=
        fmt::format("  {} {} {}\n", joined_lines(example.shown),
                    colour ? fmt::format("\033[{}m{}\033[0m", example.right ? "32" : "31", answer) : answer,
                    example.right ? in_locale("✓")
                                  : fmt::format("{} ({})", in_locale("✗"), joined_lines(example.expected)));
  }
  return out;
}

nlohmann::json to_json(const ExamResult& result) {
  nlohmann::json json{{"exact_match", result.all.accuracy()}, {"asked", result.all.asked}};
  for (const auto& [task, score] : result.by_task) {
    json["by_task"][task] = score.accuracy();
    json["asked_by_task"][task] = score.asked;
    if (result.samples > 1) json["passed_by_task"][task] = score.passed_share();
  }
  if (result.samples > 1) json["samples"] = result.samples, json["passed"] = result.all.passed_share();
  return json;
}

}  // namespace tightloop::cli
