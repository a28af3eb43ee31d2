#include "core/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace tightloop {

namespace {

volatile std::sig_atomic_t signalled = 0;

void on_signal(int) {
  if (signalled) ::_exit(130);
  signalled = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return signalled != 0; }

void clear_interrupt() { signalled = 0; }

}  // namespace tightloop
