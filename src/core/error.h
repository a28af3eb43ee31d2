#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tightloop {

/// What the program exits with. Scripts may rely on these.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,       // command line or configuration
  kData = 3,        // input files
  kCheckpoint = 4,  // saved state: reading or writing it
  kDevice = 5,      // GPU or memory
  kInterrupted = 130,
};

/// An error is a sentence for the user: what happened, where (file, line, byte, step), and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string message) : std::runtime_error(std::move(message)), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <class... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::kUsage, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error data_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::kData, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error checkpoint_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::kCheckpoint, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error device_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::kDevice, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace tightloop
