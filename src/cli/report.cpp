#include "cli/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/terminal.h"

namespace tightloop::cli {

std::string to_text(const ExactMatch& result) {
  std::string out = "Held-out questions answered exactly right\n";
  const auto line = [&](const std::string& task, const ExactMatch::Score& score) {
    const int filled = static_cast<int>(score.share() * 30);
    std::string bar;
    for (int i = 0; i < 30; ++i) bar += i < filled ? "█" : "░";
    out += fmt::format("  {:<10} {:>4}/{:<4} {} {:5.1f} %\n", task, score.right, score.asked, bar,
                       100 * score.share());
  };
  for (const auto& [task, score] : result.by_task) line(task, score);
  line("all", result.all);
  out += "Some answers\n";
  for (const auto& [question, answer] : result.examples) {
    const bool right = answer == question.answer;
    out += fmt::format("  {} {} {}\n", question.prompt, terminal::styled(answer, right ? "32" : "31"),
                       right ? "✓" : fmt::format("✗ ({})", question.answer));
  }
  return out;
}

nlohmann::json to_json(const ExactMatch& result) {
  nlohmann::json json{{"exact_match", result.all.share()}, {"asked", result.all.asked}};
  for (const auto& [task, score] : result.by_task) json["by_task"][task] = score.share();
  return json;
}

}  // namespace tightloop::cli
