#pragma once

#include "core/error.h"

namespace tightloop::cli {

/// Says the error on standard error, after everything else, and gives its exit code.
int say(const Error& error);
/// The same from any thread, and ends the program at once: files that are being written are left as a kill
/// would leave them.
[[noreturn]] void say_and_exit(const Error& error);

}  // namespace tightloop::cli
