#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <memory>

#include "cli/key_input.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/terminal/plain.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"
#include "train/run/run_events.h"
#include "train/watch/run_follower.h"
#include "train/watch/view_text.h"

namespace tightloop::cli {

namespace {

constexpr std::chrono::milliseconds kLookEvery{500};
constexpr int kTextWidth = 80;
constexpr double kNewsElsewhere = 600;  // seconds

struct TopArguments {
  std::string run;
  bool once = false, json = false;
};

/// The run that was named, or the one to look at.
std::string watched_run(const std::string& named) {
  if (named.empty()) return run_to_watch();
  const RunFolder run(existing_run_of(named));
  if (!path_exists(run.config()) && !is_folder(run.checkpoints()))
    throw usage_error("'{}' is not a run: it has no config.yaml. 'tightloop runs' lists those in 'runs'.",
                      run.root().string());
  return run.root().string();
}

std::string text_of(const RunView& view, bool whole_reason = false) {
  std::string text;
  for (const std::string& line : view_lines(view, kTextWidth, unix_time(), /*colours=*/false, whole_reason))
    text += line + "\n";
  return in_locale(text);
}

/// How it ended, in full: of an error the block has only what fits into a line.
std::string ending_of(const RunView& view, const std::string& root) {
  const auto last = choice_named<RunEvent>(view.last_event);
  const bool said = last && is_one_of(*last, {RunEvent::kFinished, RunEvent::kStopped});
  if (!view.failure.empty()) return fmt::format("{} has crashed: {}", view.name, printable(view.failure));
  if (view.state == RunState::kCrashed)
    return fmt::format("{} has crashed: {}. {}", view.name, view.remark(),
                       view.saved_step > 0
                           ? fmt::format("Go on with: tightloop train --resume {}", shell_word(root))
                           : "It has no checkpoint: train it again.");
  if (view.state == RunState::kElsewhere)
    return fmt::format(
        "{}: {}. It last wrote {} ago. If it does not train any more, go on with: tightloop train --resume "
        "{}",
        view.name, view.remark(), human_seconds(unix_time() - view.news), shell_word(root));
  if (view.state == RunState::kAveraged)
    return fmt::format("{} was averaged from checkpoints: it has not been trained itself.", view.name);
  return said ? fmt::format("{}: {}", view.name, printable(view.text))
              : fmt::format("{} is not running.", view.name);
}

/// Draws what is new until the run ends or somebody has seen enough.
class Watch {
 public:
  Watch(const std::string& root, bool json) : root_(root), follower_(root), json_(json) {}

  void once() {
    follower_.read(view_);
    put(json_ ? dump(view_.json(unix_time()), -1) + "\n" : text_of(view_, !::isatty(STDOUT_FILENO)));
  }

  void follow() {
    KeyInput keys;
    do {
      const bool changed = follower_.read(view_);
      show(changed);
    } while (goes_on() && !left(keys));
    terminal::set_block({});
    if (json_) return;
    put(text_of(view_));
    if (!goes_on()) put(ending_of(view_, root_) + "\n");
  }

 private:
  /// Of one elsewhere only its lines tell; a step or a save may take minutes.
  bool goes_on() const {
    return view_.state == RunState::kRunning ||
           (view_.state == RunState::kElsewhere && unix_time() - view_.news < kNewsElsewhere);
  }

  static bool left(KeyInput& keys) {
    const auto key = keys.wait(kLookEvery);
    if (!interrupted()) return key && (*key == 'q' || *key == 'Q');
    clear_interrupt();
    throw_if_interrupted();  // a signal other than Ctrl-C
    return true;
  }

  void show(bool changed) {
    const double now = unix_time();
    if (json_) {
      if (changed) put(dump(view_.json(now), -1) + "\n");
    } else if (terminal::is_live()) {
      auto lines = view_lines(view_, terminal::columns() - 1, now, /*colours=*/true);
      lines.push_back(terminal::styled("q leaves; the run goes on", "2"));
      terminal::set_block(lines);
    } else if (changed && now - shown_ >= progress_seconds() && goes_on()) {
      put(text_of(view_));
      shown_ = now;
    }
  }

  const std::string root_;
  RunFollower follower_;
  RunView view_;
  const bool json_;
  double shown_ = 0;
};

void top(const TopArguments& options) {
  Watch watch(watched_run(options.run), options.json);
  options.once ? watch.once() : watch.follow();
}

}  // namespace

void add_top(CLI::App& app) {
  auto options = std::make_shared<TopArguments>();
  auto* verb = app.add_subcommand("top", "Watch a run that another process trains");
  verb->add_option("RUN", options->run,
                   "A run's folder or name (default: the one in runs/ that is trained now)");
  verb->add_flag("--once", options->once, "Show how it stands and end");
  verb->add_flag("--json", options->json, "For programs: an object a line, whenever something is new");
  verb->footer(
      "It reads the run's files and disturbs nothing; q or Ctrl-C leaves, and the run goes on.\n"
      "Examples:\n"
      "  tightloop top                         the run that is trained now\n"
      "  tightloop top runs/mine\n"
      "  tightloop top runs/mine --once --json");
  verb->callback([=] { top(*options); });
}

}  // namespace tightloop::cli
