#include "train/watch/view_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/terminal/live_block.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr int kShortestBar = 8, kLongestBar = 60, kLongestCurve = 40;
constexpr double kNoNews = 60;  // seconds
constexpr const char* kBetween = "  ";

class ViewText {
 public:
  ViewText(const RunView& view, int width, double now, bool colours, bool whole_reason)
      : view_(view), width_(std::max(width, 1)), now_(now), colours_(colours), whole_reason_(whole_reason) {}

  std::vector<std::string> lines() {
    add_progress();
    add_losses();
    flow(speed());
    flow(safety());
    if (const auto why = first_line(view_.remark()); !why.empty())
      lines_.push_back(styled(whole_reason_ ? why : shortened(why, width_),
                              view_.state == RunState::kCrashed ? "31" : "33"));
    return std::move(lines_);
  }

 private:
  std::string styled(const std::string& text, const char* style) const {
    return colours_ ? fmt::format("\033[{}m{}\033[0m", style, text) : text;
  }

  /// Parts one after another, in as many lines as they need.
  void flow(const std::vector<std::string>& parts) {
    std::string line;
    for (const std::string& part : parts) {
      if (!line.empty() && shown_width(line) + 2 + shown_width(part) > width_)
        lines_.push_back(std::exchange(line, ""));
      line += (line.empty() ? "" : kBetween) + part;
    }
    if (!line.empty()) lines_.push_back(cut_to(line, width_));
    for (std::string& one : lines_) one = cut_to(one, width_);
  }

  /// What is left of a line beside the other parts.
  int room(const std::vector<std::string>& parts, int most) const {
    int taken = 0;
    for (const std::string& part : parts) taken += shown_width(part) + 2;
    return std::min(width_ - taken, most);
  }

  std::string bar(double fraction, int width) const {
    const int full = static_cast<int>(std::floor(fraction * width));
    std::string done, left;
    for (int i = 0; i < width; ++i) (i < full ? done : left) += i < full ? "█" : "░";
    return styled(done, "36") + styled(left, "2");
  }

  bool is_running() const { return view_.state == RunState::kRunning; }

  void add_progress() {
    const double fraction =
        view_.total_steps > 0
            ? std::clamp(static_cast<double>(view_.step) / static_cast<double>(view_.total_steps), 0.0, 1.0)
            : 0;
    std::vector<std::string> parts;
    if (!view_.name.empty()) parts.push_back(styled(cut_to(view_.name, std::max(8, width_ / 4)), "1"));
    if (!is_running()) parts.push_back(state());
    if (view_.total_steps > 0) {
      parts.push_back(fmt::format("{:.0f} %", std::floor(100 * fraction)));
      parts.push_back(fmt::format("step {}/{}", view_.step, view_.total_steps));
    } else {
      parts.push_back(fmt::format("step {}", view_.step));
    }
    std::string time;
    if (is_running() && view_.started > 0) time = human_seconds(now_ - view_.started) + " so far";
    if (const auto left = view_.seconds_left(); left && is_running())
      time += fmt::format("{}{} left", time.empty() ? "" : ", ", human_seconds(*left));
    if (!time.empty()) parts.push_back(time);
    const int bar_width = room(parts, kLongestBar);
    if (view_.total_steps > 0 && bar_width >= kShortestBar) {
      const size_t before_step = parts.size() - (time.empty() ? 1 : 2);
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(before_step), bar(fraction, bar_width));
    }
    flow(parts);
  }

  std::string state() const {
    const char* style = view_.state == RunState::kCrashed    ? "31"
                        : view_.state == RunState::kFinished ? "32"
                                                             : "33";
    return styled(std::string(name_of(view_.state)), style);
  }

  void add_losses() {
    std::vector<std::string> parts;
    const auto number = [&](const char* metric, auto&& text) {
      if (const auto value = view_.number(metric)) parts.push_back(text(*value));
    };
    number("training/loss", [&](double loss) {
      return fmt::format("loss {}{}", view_.running ? "~" : "",
                         std::isfinite(loss) ? shown_loss(loss) : styled(shown_loss(loss), "31"));
    });
    const bool has_loss = !parts.empty();
    number("eval/loss", [](double loss) { return "held-out " + shown_loss(loss); });
    if (const auto best = best_text(view_); !best.empty()) parts.push_back("best " + best);
    number("training/lr", [](double lr) { return fmt::format("lr {:.2e}", lr); });
    const int width = std::max(kShortestBar, room(parts, kLongestCurve));
    const std::string curve = sparkline(view_.losses, width);
    if (has_loss && view_.losses.size() > 1 && !curve.empty())
      parts.insert(parts.begin() + 1, styled(curve, "36"));
    flow(parts);
  }

  std::vector<std::string> speed() const {
    std::vector<std::string> parts;
    const auto number = [&](const char* metric, auto&& text) {
      if (const auto value = view_.number(metric)) parts.push_back(text(*value));
    };
    const auto percent = [](const char* name) {
      return [name](double fraction) { return fmt::format("{} {:.1f} %", name, 100 * fraction); };
    };
    const auto gib = [](const char* name) {
      return [name](double size) { return fmt::format("{} {:.1f} GiB", name, size); };
    };
    if (is_running()) {  // of one that does not run, these are of another time
      number("perf/tokens_per_second", [](double speed) { return human_count(speed) + " tok/s"; });
      number("perf/mfu", percent("MFU"));
      number("perf/data_wait", percent("data wait"));
      number("memory/allocated_gib", gib("memory"));
      number("memory/peak_gib", gib("peak"));
      number("memory/host_gib", gib("host"));
    }
    number("training/epoch", [](double epoch) { return fmt::format("epoch {:.2f}", epoch); });
    return parts;
  }

  std::vector<std::string> safety() const {
    std::vector<std::string> parts;
    const auto ago = [&](double time) { return human_seconds(now_ - time) + " ago"; };
    if (view_.saved_step > 0)
      parts.push_back(
          fmt::format("checkpoint {}{}", view_.saved_step, view_.saved > 0 ? ", " + ago(view_.saved) : ""));
    else
      parts.push_back("no checkpoint yet");
    const auto skipped = static_cast<int64_t>(view_.number("training/skipped_steps").value_or(0));
    if (skipped > 0)
      parts.push_back(styled(fmt::format("{} update{} skipped", skipped, skipped == 1 ? "" : "s"), "33"));
    if (view_.warnings > 0)
      parts.push_back(
          styled(fmt::format("{} warning{}", view_.warnings, view_.warnings == 1 ? "" : "s"), "33"));
    if (is_running() && view_.news > 0 && now_ - view_.news > kNoNews)
      parts.push_back(styled("nothing new for " + human_seconds(now_ - view_.news), "33"));
    if (!is_running() && view_.news > 0) parts.push_back("last written " + ago(view_.news));
    return parts;
  }

  const RunView& view_;
  const int width_;
  const double now_;
  const bool colours_, whole_reason_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string shown_loss(double loss) {
  return std::isnan(loss)   ? "NaN"
         : std::isinf(loss) ? (loss > 0 ? "Infinity" : "-Infinity")
                            : fmt::format("{:.4f}", loss);
}

std::string best_text(const RunView& view) {
  const auto best = view.best();
  if (!best) return "";
  const auto what = view.best_by == "eval/loss" ? "" : view.best_by.substr(view.best_by.find('/') + 1) + " ";
  return fmt::format("{}{} at {}", what, shown_loss(best->second), best->first);
}

std::vector<std::string> view_lines(const RunView& view, int width, double now, bool colours,
                                    bool whole_reason) {
  return ViewText(view, width, now, colours, whole_reason).lines();
}

}  // namespace tightloop
