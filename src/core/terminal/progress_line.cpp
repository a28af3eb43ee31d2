#include "core/terminal/progress_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/log.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr double kBetweenLines = 10, kFirstLine = 2;  // seconds, where there is no terminal
constexpr std::chrono::milliseconds kLookApart{200};  // also how often a terminal is redrawn
constexpr std::chrono::milliseconds kShortWork{500};  // no live line flashes up for less
constexpr std::chrono::seconds kSpeedOver{30}, kSpeedKnown{1};

std::chrono::steady_clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

double progress_seconds() {
  static const double seconds = [] {
    const char* text = std::getenv("TIGHTLOOP_PROGRESS_SECONDS");
    const double value = text ? std::atof(text) : 0;
    return std::isfinite(value) && value > 0 ? value : kBetweenLines;
  }();
  return seconds;
}

Ticker::Ticker(std::chrono::milliseconds apart, std::function<void()> tick)
    : thread_([this, apart, tick = std::move(tick)] {
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, apart, [this] { return stopped_; })) {
          lock.unlock();
          tick();
          lock.lock();
        }
      }) {}

Ticker::~Ticker() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

ProgressLine::ProgressLine(std::string what, uint64_t total, Unit unit)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      next_(start_ + (terminal::is_live() ? Clock::duration(kShortWork)
                                          : seconds_of(std::min(kFirstLine, progress_seconds())))),
      samples_{{start_, 0}},
      ticker_(std::min(kLookApart, std::chrono::milliseconds(static_cast<int64_t>(
                                       std::clamp(progress_seconds() * 500, 1.0, 1000.0)))),
              [this] { tick(); }) {}

ProgressLine::~ProgressLine() {
  std::lock_guard lock(mutex_);  // no tick is under way, and a later one asks nobody
  count_ = {}, note_ = {}, next_ = Clock::time_point::max();
  if (drawn_) terminal::clear_live();
}

void ProgressLine::count_from(std::function<uint64_t()> done) {
  std::lock_guard lock(mutex_);
  count_ = std::move(done);
}

void ProgressLine::note_from(std::function<std::string()> note) {
  std::lock_guard lock(mutex_);
  note_ = std::move(note);
}

std::optional<double> ProgressLine::left(uint64_t done, Clock::time_point now) {
  samples_.emplace_back(now, done);
  while (samples_.size() > 2 && now - samples_[1].first > kSpeedOver) samples_.pop_front();
  const auto [then, before] = samples_.front();
  if (now - then < kSpeedKnown || done <= before || done > total_) return {};
  return std::chrono::duration<double>(now - then).count() * static_cast<double>(total_ - done) /
         static_cast<double>(done - before);
}

void ProgressLine::tick() {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const uint64_t done = count_ ? count_() : done_.load(std::memory_order_relaxed);
  const auto seconds = left(done, now);
  if (now < next_ || !log::terminal_shows(log::Level::kInfo)) return;
  const std::string text = progress_line(what_, done, total_, unit_, note_ ? note_() : "", seconds,
                                         std::chrono::duration<double>(now - start_).count());
  if (terminal::is_live()) {
    terminal::set_live(text);
    drawn_ = true;
  } else {
    log::info("{}", text);
    next_ = now + seconds_of(progress_seconds());
  }
}

std::string progress_line(const std::string& what, uint64_t done, uint64_t total, ProgressLine::Unit unit,
                          const std::string& note, std::optional<double> left, double so_far) {
  std::string text = what + ": ";
  const bool known = total > 0 && done > 0;
  if (known && unit == ProgressLine::Unit::kCount)
    text += fmt::format("{}/{}, ", std::min(done, total), total);
  if (known)
    text += fmt::format(
        "{:.0f} %", std::floor(100 * std::min(1.0, static_cast<double>(done) / static_cast<double>(total))));
  if (known && unit == ProgressLine::Unit::kBytes) text += " of " + human_bytes(static_cast<double>(total));
  if (!note.empty()) text += (known ? ", " : "") + note;
  if (known || !note.empty()) text += ", ";
  if (known && done >= total) return text + "finishing";
  return text + (left ? fmt::format("about {} left", human_seconds(*left))
                      : fmt::format("{} so far", human_seconds(so_far)));
}

}  // namespace tightloop
