#include "core/mapped_faults.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "core/error.h"

namespace tightloop {

namespace {

// What a signal handler may read: fixed memory, and an address that is set last.
struct Watched {
  std::atomic<const std::byte*> begin{nullptr};
  size_t size = 0;
  char path[512] = {};
};
std::array<Watched, 1024> watched;  // further maps go unwatched
std::mutex mutex;

void say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void on_fault(int signal, siginfo_t* info, void*) {
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  for (const Watched& one : watched) {
    const std::byte* const begin = one.begin.load(std::memory_order_acquire);
    if (!begin || at < begin || at >= begin + one.size) continue;
    say("\nerror: '");
    say(one.path);
    say("' became shorter while it was read, or its disk failed. Put the whole file back and start again.\n");
    ::_exit(static_cast<int>(ExitCode::kData));
  }
  ::signal(signal, SIG_DFL);  // somebody else's fault: it comes again, and ends the program
}

void catch_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void watch_map(const std::byte* begin, size_t size, const std::filesystem::path& path) {
  std::lock_guard lock(mutex);
  static const bool caught = (catch_faults(), true);
  static_cast<void>(caught);
  for (Watched& one : watched) {
    if (one.begin.load(std::memory_order_relaxed)) continue;
    one.size = size;
    const size_t length = path.string().copy(one.path, sizeof one.path - 1);
    one.path[length] = '\0';
    one.begin.store(begin, std::memory_order_release);
    return;
  }
}

void unwatch_map(const std::byte* begin) {
  std::lock_guard lock(mutex);
  for (Watched& one : watched)
    if (one.begin.load(std::memory_order_relaxed) == begin) return one.begin.store(nullptr);
}

}  // namespace tightloop
