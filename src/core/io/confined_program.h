#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tightloop {

/// How a program ended.
enum class ProgramEnd { kSucceeded, kFailed, kTimedOut };

struct ConfinedLimits {
  std::chrono::milliseconds time{5000};
  uint64_t memory_bytes = 256 << 20;  // of address space
  uint64_t file_bytes = 1 << 20;      // that a file it writes may have
  int success = 0;                    // the exit code that says so
};

/// Runs a script by an interpreter, in a process of its own that does harm only on purpose: in an empty
/// folder that is removed afterwards, without input, output, our open files and our environment, in bounds of
/// time, memory and file size, and without a network where the system lets an ordinary user take it away. It
/// may still read what the user may read: a container or another user keeps secrets from it. A usage error
/// where the interpreter cannot be started.
ProgramEnd run_confined(const std::string& interpreter, const std::string& script,
                        const ConfinedLimits& limits = {});

}  // namespace tightloop
