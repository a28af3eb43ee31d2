#include "train/report/step_watch.h"

#include <fmt/format.h>

#include <utility>

#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr double kLiveQuiet = 2;   // seconds after which a terminal is drawn anew
constexpr double kLaterLines = 3;  // lines after the first come so many times more rarely
constexpr double kLongStep = 5;    // seconds; the block of a terminal tells of shorter ones
constexpr std::chrono::milliseconds kWatchApart{100};

std::string step_seconds(double seconds) {
  return seconds < 10 ? fmt::format("{:.1f} s a step", seconds)
                      : fmt::format("{} a step", human_seconds(seconds));
}

}  // namespace

std::string pace_text(const StepPace& pace) {
  std::string text =
      fmt::format("step {:>{}}/{}  ", pace.step, fmt::formatted_size("{}", pace.total), pace.total);
  if (pace.queued)
    return text + fmt::format("sent to the device, {} after the start", human_seconds(pace.since_start));
  const auto under_way = human_seconds(pace.under_way);
  if (pace.timed == 0) return text + fmt::format("first step, {} so far", under_way);
  const double mean = pace.seconds / static_cast<double>(pace.timed);
  const double left = mean * static_cast<double>(pace.total - pace.step + 1) - pace.under_way;
  text += fmt::format("{}{}, about {} left", pace.first ? "first steps, " : "", step_seconds(mean),
                      human_seconds(left));
  if (pace.under_way > kLongStep) text += fmt::format(", this one {} so far", under_way);
  return text;
}

StepWatch::StepWatch(int64_t total_steps, bool queued, bool several, bool speaks)
    : several_(several),
      speaks_(speaks),
      pace_{.total = total_steps, .queued = queued},
      ticker_(kWatchApart, [this] { look(); }) {}

void StepWatch::begin(int64_t step) {
  std::lock_guard lock(mutex_);
  pace_.step = step;
  began_ = Clock::now();
  under_way_ = true;
}

void StepWatch::end(bool logged) {
  std::lock_guard lock(mutex_);
  pace_.seconds += std::chrono::duration<double>(Clock::now() - began_).count();
  ++pace_.timed;
  pace_.first &= !logged;
  under_way_ = false;
  if (!pace_.first && std::exchange(drawn_, false)) terminal::clear_live();
}

void StepWatch::look() {
  std::lock_guard lock(mutex_);
  if (!speaks_) return;
  if (interrupted() && !told_of_stop_) {
    told_of_stop_ = true;
    const std::string first = !under_way_ ? "Stopping, and saving what is not saved yet"
                              : several_  ? "Finishing the steps under way, then saving"
                                          : fmt::format("Finishing step {}, then saving", pace_.step);
    log::info("{}; Ctrl-C again stops at once without saving.", first);
  }
  if (!under_way_) return;
  pace_.under_way = std::chrono::duration<double>(Clock::now() - began_).count();
  pace_.since_start = std::chrono::duration<double>(Clock::now() - start_).count();
  const double quiet = terminal::quiet_seconds();
  if (terminal::is_live()) {
    if (pace_.first ? quiet < kLiveQuiet : pace_.under_way < kLongStep) return;
    terminal::set_live(pace_text(pace_));
    drawn_ = true;
  } else if (quiet >= progress_seconds() * (pace_.first && !spoke_ ? 1 : kLaterLines)) {
    log::info("{}", pace_text(pace_));
    spoke_ = true;
  }
}

}  // namespace tightloop
