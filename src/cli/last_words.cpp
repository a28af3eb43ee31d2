#include "cli/last_words.h"

#include <unistd.h>

#include <cstdio>

#include "core/log.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

int say(const Error& error) {
  terminal::clear_live();
  log::shut_down();
  std::fprintf(stderr, "%s%s\n", terminal::styled("tightloop: ", "1;31").c_str(),
               printable(error.what()).c_str());
  return static_cast<int>(error.code());
}

void say_and_exit(const Error& error) { ::_exit(say(error)); }

}  // namespace tightloop::cli
