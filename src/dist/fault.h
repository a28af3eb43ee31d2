#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tightloop {

/// Why several processes end together. The first one to be written into the store counts, so that all of them
/// say the same and exit with the same code.
struct Fault {
  int rank = kAll;  // whose it is
  ExitCode code = ExitCode::kFailure;
  std::string sentence;  // as every process says it, with the rank and its host

  static constexpr int kAll = -1;  // nobody's in particular
  /// Longer sentences are cut.
  static constexpr size_t kMostBytes = 4000;

  /// As the store has it, and back; nothing where the text is none.
  std::string text() const;
  static std::optional<Fault> from_text(std::string_view text);
  Error error() const { return {code, sentence}; }
};

/// An error that every process finds, in the same words: it is nobody's in particular.
struct SharedError : Error {
  using Error::Error;
};

/// What a process says as it ends because of `error`, and its exit code: also for exceptions that are not
/// ours, such as those of torch's allocators.
Error last_words(const std::exception& error);

}  // namespace tightloop
