#include "train/run/run_share.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "core/files.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "dist/send_files.h"
#include "train/run/checkpoint.h"

namespace tightloop {

namespace {

/// A file in the run's folder that nobody can have by chance, while it lives.
class Token {
 public:
  explicit Token(const RunFolder& run) : path_(partial_path(run.config())) {
    std::random_device random;
    text_ = hex64(random()) + hex64(random());
    write_file_whole(path_, text_);
  }
  ~Token() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  /// What finds it elsewhere: under the same name, from the folder that a process is in.
  std::string clue() const { return path_.string() + "\n" + text_; }

 private:
  fs::path path_;
  std::string text_;
};

bool sees(const std::string& clue) {
  const size_t line = clue.rfind('\n');
  const fs::path path = clue.substr(0, line);
  return is_file(path) && read_file(path) == clue.substr(line + 1);
}

/// A disk may be mounted for reading alone, or know this machine's users by other numbers.
bool may_write(const std::string& clue) {
  return ::access(clue.substr(0, clue.rfind('\n')).c_str(), W_OK) == 0;
}

}  // namespace

RunShare::RunShare(const RunFolder& run, Processes& processes) : processes_(processes), run_(run) {
  if (!processes.several()) return;
  if (processes.main()) {
    const Token token(run);
    processes.broadcast_text(token.clue());
    everywhere_ = !processes.any(false);
    all_may_write_ = !processes.any(false);  // and nobody looks any more
  } else {
    const auto clue = processes.broadcast_text({});
    own_ = !sees(clue);
    everywhere_ = !processes.any(own_);
    all_may_write_ = !processes.any(!may_write(clue));
    run_ = RunFolder(fs::path(clue.substr(0, clue.rfind('\n'))).parent_path());
  }
  if (own_) {
    run_ = RunFolder(partial_path(temporary_folder() / "tightloop-run"));
    make_folder(run_.checkpoints());
  }
  if (!everywhere_ && processes.main())
    log::info("Not all processes see '{}': they get copies of what they read of it.", run.root().string());
}

RunShare::~RunShare() {
  if (!own_) return;
  std::error_code ignored;
  fs::remove_all(run_.root(), ignored);
}

void RunShare::send(const std::vector<fs::path>& names) {
  if (everywhere_) return processes_.barrier();
  send_files(processes_, run_.root(), names, own_);
}

void RunShare::send_settings() {
  send({run_.config().filename(), run_.tokenizer().filename(), run_.target_tokenizer().filename()});
}

void RunShare::send_prepared() {
  send({run_.tokenizer().filename(), run_.target_tokenizer().filename(), run_.index().filename()});
}

void RunShare::send_checkpoint(int64_t step) {
  drop_checkpoints();
  const auto folder = processes_.main() ? checkpoint_folder(run_.checkpoints(), step) : fs::path();
  send({folder.lexically_relative(run_.root())});
  if (!own_ && !processes_.main()) wait_until_seen(step);
}

// Reading the folder asks the server anew, which looking for a name need not. Who waits in vain gets an error
// when it reads.
void RunShare::wait_until_seen(int64_t step) const {
  constexpr std::chrono::seconds kLongest{100};
  constexpr std::chrono::milliseconds kLook{100};
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (std::ranges::count(checkpoint_steps(run_.checkpoints()), step) == 0 &&
         std::chrono::steady_clock::now() < end) {
    processes_.check();
    throw_if_interrupted();
    std::this_thread::sleep_for(kLook);
  }
}

void RunShare::drop_checkpoints() {
  if (!own_) return;
  remove_path(run_.checkpoints());
  make_folder(run_.checkpoints());
}

}  // namespace tightloop
