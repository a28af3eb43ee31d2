#include "train/report/terminal_sink.h"

#include <exception>

#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/report/sinks.h"
#include "train/run/run_events.h"
#include "train/watch/view_text.h"

namespace tightloop {

namespace {

constexpr std::chrono::seconds kLineApart{2}, kTickApart{1};
constexpr std::chrono::milliseconds kRedrawApart{50};

}  // namespace

TerminalSink::TerminalSink(const std::filesystem::path& run) : run_(run) {
  if (!terminal::is_live()) return;
  read_run();
  ticker_.emplace(kTickApart, [this] {
    std::lock_guard lock(mutex_);
    try {
      follower_->read_events(view_);
    } catch (const std::exception&) {  // a settings file that cannot be read just now
    }
    if (shown_ != Clock::time_point{}) draw();
  });
}

void TerminalSink::read_run() {
  follower_.emplace(run_);
  view_ = {};
  try {
    follower_->read(view_);
  } catch (const std::exception&) {
    view_ = {};  // a block without it; nothing of this may cost the run
  }
}

void TerminalSink::rewind(int64_t) {
  if (!terminal::is_live()) return;
  std::lock_guard lock(mutex_);
  read_run();  // metrics.jsonl, which comes before this sink, has gone back
}

TerminalSink::~TerminalSink() {
  ticker_.reset();
  terminal::set_block({});
}

void TerminalSink::write(const MetricsLine& line) {
  if (!terminal::is_live()) return write_plain(line);
  std::lock_guard lock(mutex_);
  if (!line.report) return view_.add_metrics(line.values);
  view_.add_report(*line.report);
  const auto now = Clock::now();
  if (!view_.number("training/loss") || (line.report->running && now - shown_ < kRedrawApart)) return;
  if (shown_ == Clock::time_point{}) terminal::clear_live();  // what was said before there were numbers
  shown_ = now;
  draw();
}

void TerminalSink::write_plain(const MetricsLine& line) {
  if (!line.report || !line.report->number("training/loss")) return;
  const IntervalReport& report = *line.report;
  const auto now = Clock::now();
  if (report.running || (report.step != report.total_steps && now - shown_ < kLineApart)) return;
  log::info("{}", progress_text(report));
  shown_ = now;
}

void TerminalSink::draw() {
  view_.state = RunState::kRunning;
  view_.news = 0;  // a step that takes long is said by StepWatch
  terminal::set_block(view_lines(view_, terminal::columns() - 1, unix_time(), /*colours=*/true));
}

}  // namespace tightloop
