#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>

namespace tightloop::testing {

/// Does it in a process that may not write everywhere, as the administrator may. What `folder` holds belongs
/// to that process, and only what is then made read-only is closed to it. Expects that nothing is thrown.
template <class Body>
void unprivileged(const std::filesystem::path& folder, Body&& body) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      if (::getuid() == 0) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
          if (::lchown(entry.path().c_str(), kNobody, kNobody) != 0) ::_exit(2);
        if (::chown(folder.c_str(), kNobody, kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
      }
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    ::_exit(::testing::Test::HasFailure());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace tightloop::testing
