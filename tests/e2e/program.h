#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
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

/// For processes to meet at: below the ports that the system gives to connections, any of which may be taken
/// at any moment.
inline int some_port() {
  static int count = 0;
  return 20000 + (::getpid() * 7 + count++) % 12000;
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

/// Waits (20 s at most) until the command has its handlers and `ready` succeeds, sends it a signal and gives
/// its exit code; "ms N" in the output says how long it took to end.
inline std::string signalled(const std::string& command, const std::string& ready,
                             const std::string& signal) {
  return "'" TIGHTLOOP_BINARY_DIR "/tightloop' " + command +
         " & child=$!; until [ $((0x0$(sed -n 's/SigCgt:[^0-9a-f]*//p' /proc/$child/status) & 0x4000)) -ne 0 "
         "]; "
         "do sleep 0.02; done; for i in $(seq 400); do { " +
         ready + "; } 2>/dev/null && break; sleep 0.05; done; began=$(date +%s%N); kill -" + signal +
         " $child; wait $child; code=$?; echo ms $(( ($(date +%s%N) - began) / 1000000 )); exit $code";
}

/// Words of letters, some of them at the end of a document.
inline void write_text(const fs::path& file, size_t bytes) {
  std::ofstream out(file, std::ios::binary);
  uint32_t state = 1;
  for (size_t written = 0; written < bytes;) {
    std::string word;
    for (uint32_t i = 0, letters = 2 + (state >> 24) % 9; i < letters; ++i) {
      state = state * 1664525 + 1013904223;
      word += static_cast<char>('a' + (state >> 16) % 26);
    }
    word += (state >> 28) == 0 ? "\n\n" : " ";
    out << word;
    written += word.size();
  }
}

/// A recipe whose single steps take a second or more.
inline std::string slow_steps() {
  return tiny() + "--train.micro_batch 5000 --train.steps 1000 --train.logging_steps 1000 ";
}

/// Succeeds, for signalled(), when a run of this name is in its first step.
inline std::string in_a_step(const std::string& run) {
  return "[ -e runs/" + run + "/metrics.jsonl ] && sleep 0.3";
}

}  // namespace tightloop::testing
