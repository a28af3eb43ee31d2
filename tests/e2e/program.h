#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "core/files.h"
#include "support.h"

namespace tightloop::testing {

/// What a run of the built program printed (both streams) and how it ended.
struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// Runs a shell command; `tightloop` in it is the program that was built. Working folder: `folder`.
inline Outcome run(const fs::path& folder, const std::string& command) {
  const std::string shell = "cd '" + folder.string() +
                            "' && tightloop() { '" TIGHTLOOP_BINARY_DIR "/tightloop' \"$@\"; } && { " +
                            command + "; } 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(shell.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A recipe that trains in a second.
inline std::string tiny() {
  return "'" TIGHTLOOP_SOURCE_DIR
         "/configs/quickstart.yaml' --train.device cpu --train.precision fp32 --model.layers 1 --model.width "
         "32 "
         "--model.heads 2 --train.micro_batch 8 --tasks.questions 400 --tasks.held_out 20 "
         "--train.warmup_steps 5 "
         "--train.logging_steps 5 ";
}

}  // namespace tightloop::testing
