#include "core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>

#include "core/error.h"

namespace tightloop {

namespace {

using namespace std::chrono_literals;

constexpr auto kSameSignal = 500ms;
constexpr struct {
  int number;
  const char* name;
} kSignals[] = {{SIGINT, "Ctrl-C (SIGINT)"},
                {SIGTERM, "SIGTERM"},
                {SIGHUP, "SIGHUP (the terminal or its connection is gone)"},
                {SIGQUIT, "SIGQUIT"}};

std::atomic<int> signalled = 0;  // its number; asked by every thread
std::atomic<std::chrono::steady_clock::time_point> first_at;
std::atomic<int> ends_program = 0;
std::atomic<bool> save_requested = false;
thread_local int holds = 0;  // InterruptsHeld
static_assert(decltype(first_at)::is_always_lock_free && decltype(signalled)::is_always_lock_free &&
                  decltype(save_requested)::is_always_lock_free,
              "a handler may not wait for a lock");

void on_signal(int number) {
  const auto now = std::chrono::steady_clock::now();
  if (signalled ? now - first_at.load() > kSameSignal : ends_program != 0)
    ::_exit(static_cast<int>(ExitCode::kInterrupted));
  if (signalled) return;
  first_at = now;
  signalled = number;
}

void on_save_request(int) { save_requested = true; }

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const auto& signal : kSignals) {
    struct sigaction before {};
    const bool by_nohup =
        signal.number == SIGHUP && ::sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!by_nohup) ::sigaction(signal.number, &action, nullptr);
  }
  action.sa_handler = on_save_request;
  ::sigaction(SIGUSR1, &action, nullptr);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

bool interrupted() { return signalled != 0; }

bool take_save_request() { return save_requested.exchange(false); }

InterruptsHeld::InterruptsHeld() { ++holds; }
InterruptsHeld::~InterruptsHeld() { --holds; }

void throw_if_interrupted() {
  if (holds > 0) return;
  for (const auto& signal : kSignals)
    if (signal.number == signalled)
      throw Error(ExitCode::kInterrupted, fmt::format("stopped by {}.", signal.name));
}

void clear_interrupt() {
  if (signalled == SIGINT) signalled = 0;
}

InterruptEndsProgram::InterruptEndsProgram() {
  ends_program = 1;
  throw_if_interrupted();  // one that came before
}
InterruptEndsProgram::~InterruptEndsProgram() { ends_program = 0; }

}  // namespace tightloop
