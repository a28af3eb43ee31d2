#include "cli/run_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "core/files.h"
#include "core/terminal/live_block.h"
#include "core/terminal/terminal.h"
#include "train/run/run_settings.h"
#include "train/watch/run_follower.h"
#include "train/watch/view_text.h"

namespace tightloop::cli {

namespace {

constexpr const char* kNothing = "-";
constexpr int kShortestName = 12;

using Row = std::vector<std::string>;

/// "42s", "12m", "5h", "3d".
std::string age_text(double seconds) {
  constexpr std::pair<double, const char*> kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "m"}};
  for (const auto& [size, unit] : kUnits)
    if (seconds >= size) return fmt::format("{:.0f}{}", std::floor(seconds / size), unit);
  return fmt::format("{:.0f}s", std::floor(std::max(0.0, seconds)));
}

/// "6.4M", as `ls -h` says it.
std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  auto size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1000 && unit < 4; ++unit) size /= 1024;
  return fmt::format("{:.{}f}{}", size, unit > 0 && size < 9.95 ? 1 : 0, kUnits[unit]);
}

std::string steps_text(const RunView& view) {
  const auto text = [](int64_t step) {
    return step < 100'000 ? std::to_string(step) : human_count(static_cast<double>(step));
  };
  return text(view.step) + (view.total_steps > 0 ? "/" + text(view.total_steps) : "");
}

std::string short_loss(std::optional<double> loss) {
  if (!loss) return kNothing;
  return std::isfinite(*loss) ? fmt::format("{:.3f}", *loss) : shown_loss(*loss);
}

std::optional<double> best_of(const RunView& view) {
  const auto best = view.best();
  return best ? std::optional(best->second) : std::nullopt;
}

std::string speed_text(const RunView& view) {
  const auto speed = view.number("perf/tokens_per_second");
  return speed ? human_count(*speed) : kNothing;
}

const char* state_style(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "36";
    case RunState::kFinished:
    case RunState::kAveraged:
      return "32";
    case RunState::kCrashed:
      return "31";
    case RunState::kNew:
    case RunState::kElsewhere:
    case RunState::kStopped:
      return "33";
  }
  return "0";
}

std::string aligned(const std::string& text, int width, bool left) {
  const std::string space(static_cast<size_t>(std::max(0, width - shown_width(text))), ' ');
  return left ? text + space : space + text;
}

/// Pieces of a text that fit into a column.
std::vector<std::string> pieces(std::string text, int width) {
  std::vector<std::string> found;
  do {
    std::string piece = cut_to(text, width);
    if (piece.empty()) break;  // one character is wider than the column
    text.erase(0, piece.size());
    found.push_back(std::move(piece));
  } while (!text.empty());
  return found;
}

struct ComparedRun {
  RunView view;
  std::map<std::string, std::string> settings;
};

ComparedRun compared(const std::string& folder) {
  const RunFolder run(folder);
  ComparedRun found{summary_of(run.root()), {}};
  if (is_file(run.config())) found.settings = values_in(read_file(run.config()));
  return found;
}

/// Key and the two values, - where a run has none: those that differ, without the name.
std::vector<std::array<std::string, 3>> differences(const ComparedRun& one, const ComparedRun& other) {
  std::set<std::string> keys;
  for (const auto* run : {&one, &other})
    for (const auto& [key, value] : run->settings) keys.insert(key);
  keys.erase("run.name");
  std::vector<std::array<std::string, 3>> found;
  const auto value_of = [](const ComparedRun& run, const std::string& key) {
    const auto value = run.settings.find(key);
    return value == run.settings.end() ? std::string(kNothing) : value->second;
  };
  for (const std::string& key : keys)
    if (value_of(one, key) != value_of(other, key))
      found.push_back({key, value_of(one, key), value_of(other, key)});
  return found;
}

std::array<std::string, 3> result_row(const char* name, const ComparedRun& one, const ComparedRun& other,
                                      auto&& text) {
  return {name, text(one.view), text(other.view)};
}

}  // namespace

std::string runs_table(const std::vector<ListedRun>& runs, int width, double now, bool colours,
                       bool whole_reasons) {
  std::vector<Row> rows{{"name", "state", "step", "loss", "held-out", "best", "tok/s", "age", "size"}};
  for (const ListedRun& run : runs) {
    const RunView& view = run.view;
    rows.push_back({view.name, std::string(name_of(view.state)), steps_text(view),
                    short_loss(view.number("training/loss")), short_loss(view.number("eval/loss")),
                    short_loss(best_of(view)), speed_text(view),
                    view.news > 0 ? age_text(now - view.news) : kNothing, size_text(run.bytes)});
  }
  std::vector<int> widths(rows[0].size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], shown_width(row[i]));
  int others = 0;
  for (size_t i = 1; i < widths.size(); ++i) others += widths[i] + 2;
  widths[0] = std::min(widths[0], std::max(kShortestName, width - others));

  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    Row row = rows[r];
    if (r > 0 && !runs[r - 1].problem.empty()) {
      text += fmt::format("{}  cannot be read: {}\n", row[0], printable(runs[r - 1].problem));
      continue;
    }
    if (shown_width(row[0]) > widths[0]) {
      text += row[0] + "\n";
      row[0].clear();
    }
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = aligned(row[i], widths[i], /*left=*/i < 2);
      if (colours && i == 1 && r > 0)
        cell = fmt::format("\033[{}m{}\033[0m", state_style(runs[r - 1].view.state), cell);
      if (colours && r == 0) cell = fmt::format("\033[2m{}\033[0m", cell);
      line += (i == 0 ? "" : "  ") + cell;
    }
    text += line + "\n";
    if (const auto why = r > 0 ? first_line(runs[r - 1].view.remark()) : ""; !why.empty())
      text += "  " + (whole_reasons ? why : shortened(why, width - 2)) + "\n";
  }
  return text;
}

nlohmann::json runs_json(const std::vector<ListedRun>& runs, double now) {
  auto list = nlohmann::json::array();
  for (const ListedRun& run : runs) {
    nlohmann::json one{{"name", run.view.name}};
    if (run.problem.empty()) one = run.view.json(now);
    if (!run.problem.empty()) one["problem"] = run.problem;
    one["folder"] = run.root.string();
    one["bytes"] = run.bytes;
    if (run.view.news > 0) one["changed"] = run.view.news;
    list.push_back(std::move(one));
  }
  return list;
}

std::string compared_table(const std::string& one, const std::string& other, int width, double now) {
  const ComparedRun a = compared(one), b = compared(other);
  std::vector<std::array<std::string, 3>> rows{{"", a.view.name, b.view.name}};
  const size_t settings_at = rows.size();
  for (const auto& [key, left, right] : differences(a, b))
    rows.push_back({printable(key), printable(left), printable(right)});
  const size_t results_at = rows.size();
  const auto add = [&](const char* name, auto&& text) { rows.push_back(result_row(name, a, b, text)); };
  add("state", [](const RunView& view) { return std::string(name_of(view.state)); });
  add("step", steps_text);
  const auto loss = [](std::optional<double> value) { return value ? shown_loss(*value) : kNothing; };
  add("training loss", [&](const RunView& view) { return loss(view.number("training/loss")); });
  add("held-out loss", [&](const RunView& view) { return loss(view.number("eval/loss")); });
  add("best held-out", [](const RunView& view) {
    const auto best = best_text(view);
    return best.empty() ? std::string(kNothing) : best;
  });
  add("last tokens/s", speed_text);
  add("last written", [&](const RunView& view) {
    return view.news > 0 ? age_text(now - view.news) + " ago" : std::string(kNothing);
  });

  int key = 0;
  for (const auto& row : rows) key = std::max(key, shown_width(row[0]));
  const int column = std::max(8, (width - key - 4) / 2);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == settings_at) text += r == results_at ? "The settings are the same.\n" : "Settings that differ\n";
    if (r == results_at) text += "Results\n";
    const auto left = pieces(rows[r][1], column), right = pieces(rows[r][2], column);
    for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
      const std::string line = fmt::format("{}  {}  {}", aligned(i == 0 ? rows[r][0] : "", key, true),
                                           aligned(i < left.size() ? left[i] : "", column, true),
                                           i < right.size() ? right[i] : "");
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  }
  return text;
}

nlohmann::json compared_json(const std::string& one, const std::string& other, double now) {
  const ComparedRun a = compared(one), b = compared(other);
  nlohmann::json settings = nlohmann::json::object();
  const auto value = [](const std::string& text) {
    return text == kNothing ? nlohmann::json() : setting_json(text);
  };
  for (const auto& [key, left, right] : differences(a, b))
    settings[key] = nlohmann::json::array({value(left), value(right)});
  return {{"settings", settings}, {"runs", {a.view.json(now), b.view.json(now)}}};
}

}  // namespace tightloop::cli
