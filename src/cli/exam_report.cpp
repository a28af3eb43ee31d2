#include "cli/exam_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output.h"
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

std::string to_text(const SuiteResult& result) {
  size_t width = 4;
  for (const auto& task : result.tasks) width = std::max(width, printable(task.name).size());
  std::string out = fmt::format("  {:<{}} {:<17} {:>5} {:>8} {:>16} {:>8}\n", "task", width, "kind", "shots",
                                "problems", "accuracy", "centred");
  for (const auto& task : result.tasks)
    out += fmt::format("  {:<{}} {:<17} {:>5} {:>8} {:>7.2f} ± {:>5.2f}% {:>8.4f}\n", printable(task.name),
                       width, name_of(task.kind), task.shots, task.right.size(), 100 * task.accuracy(),
                       100 * task.standard_error(), task.centered());
  out += fmt::format("{}: CORE {:.4f} ± {:.4f} (the mean of {} centred accuracies)\n", printable(result.name),
                     result.core(), result.core_error(), result.tasks.size());
  return in_locale(out);
}

nlohmann::json to_json(const SuiteResult& result) {
  nlohmann::json json{{"suite", result.name},
                      {"core", result.core()},
                      {"core_stderr", result.core_error()},
                      {"tasks", nlohmann::json::array()}};
  for (const auto& task : result.tasks)
    json["tasks"].push_back({{"task", task.name},
                             {"kind", name_of(task.kind)},
                             {"shots", task.shots},
                             {"problems", task.right.size()},
                             {"accuracy", task.accuracy()},
                             {"stderr", task.standard_error()},
                             {"baseline", task.baseline},
                             {"centered", task.centered()},
                             {"seconds", task.seconds}});
  return json;
}

std::string details_of(const SuiteResult& result) {
  std::string lines;
  for (const auto& task : result.tasks)
    for (size_t i = 0; i < task.right.size(); ++i) {
      nlohmann::json line{{"task", task.name}, {"problem", i}, {"right", task.right[i] != 0}};
      if (!task.losses.empty()) line["losses"] = task.losses[i];
      if (!task.answers.empty()) line["answer"] = task.answers[i];
      lines += dump(line, -1) + "\n";
    }
  return lines;
}

}  // namespace tightloop::cli
