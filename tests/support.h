#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/choice.h"
#include "core/error.h"

namespace tightloop {

/// Choices in messages of tests, by their names.
template <class Enum>
requires(!kChoices<Enum>.empty()) std::ostream& operator<<(std::ostream& out, Enum value) {
  return out << name_of(value);
}

}  // namespace tightloop

namespace tightloop::testing {

namespace fs = std::filesystem;

/// An empty folder of this test's own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "tightloop-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Exactly these bytes.
inline void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The checkout that these tests were built from.
fs::path source_folder();
/// The set-up's Python, which may be absent.
fs::path python();
/// Runs a script of the checkout with it and returns the exit status.
int run_python(const std::string& script, const fs::path& argument);

/// Data sets that belong to others and are not in the repository: $TIGHTLOOP_DATA, or ../shared/data beside
/// the checkout. Tests that need them skip with a message when they are absent.
fs::path shared_data();

#define SKIP_WITHOUT(path)                                                      \
  do {                                                                          \
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "not here: " << (path); \
  } while (false)

/// Runs the statement, expects a tightloop::Error with this exit code, and returns its message.
template <class Body>
std::string error_of(ExitCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace tightloop::testing
