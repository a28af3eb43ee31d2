#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "core/files.h"
#include "support.h"

namespace tightloop::testing {

/// Tests of several processes start this program again for the test they are in; there the same test does the
/// work of one of them:
///
///     TEST(Processes, AddUp) {
///       if (!in_child()) return expect_success(2);
///       Processes processes;
///       EXPECT_EQ(processes.sum(int64_t{1}), 2);
///     }
inline bool in_child() { return std::getenv("TIGHTLOOP_TEST_CHILD") != nullptr; }

using Environment = std::map<std::string, std::string>;

/// A port that nobody listens on.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// As processes name this machine.
inline std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// The running test in a process of its own.
class Child {
 public:
  Child(const fs::path& output, Environment environment) : output_(output) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
    environment["TIGHTLOOP_TEST_CHILD"] = "1";
    environment["OMP_NUM_THREADS"] = "1";
    id_ = ::fork();
    if (id_ != 0) return;
    const int file = ::open(output.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ::dup2(file, 1), ::dup2(file, 2);
    for (const char* name : {"GTEST_OUTPUT", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) ::unsetenv(name);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execl("/proc/self/exe", "tests", filter.c_str(), nullptr);
    ::_exit(127);
  }
  ~Child() {
    kill(SIGKILL);
    wait(std::chrono::seconds(10));
  }
  Child(Child&& other) noexcept : output_(std::move(other.output_)), id_(std::exchange(other.id_, 0)) {}
  Child& operator=(Child&&) = delete;

  void kill(int signal) {
    if (id_ > 0) ::kill(id_, signal);
  }
  /// Its exit code (128 + the signal that ended it); nothing where it still runs.
  std::optional<int> wait(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (id_ > 0) {
      int status = 0;
      if (::waitpid(id_, &status, WNOHANG) == id_) {
        id_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (std::chrono::steady_clock::now() > end) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return std::nullopt;
  }
  std::string output() const { return read_file(output_); }

 private:
  fs::path output_;
  pid_t id_ = 0;
};

/// The running test, `world` times, with what torchrun would set.
inline std::vector<Child> start_children(const TempFolder& folder, int world, Environment environment = {}) {
  environment["WORLD_SIZE"] = std::to_string(world);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment.try_emplace("MASTER_PORT", std::to_string(free_port()));
  environment["TIGHTLOOP_TEST_FOLDER"] = folder.path().string();
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) {
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
    children.emplace_back(folder / ("output-" + std::to_string(rank)), environment);
  }
  return children;
}

/// Runs the test in `world` processes, which all must pass, and may leave things in the folder.
inline void expect_success(const TempFolder& folder, int world, const Environment& environment = {},
                           std::chrono::seconds limit = std::chrono::seconds(60)) {
  auto children = start_children(folder, world, environment);
  for (int rank = 0; rank < world; ++rank) {
    auto& child = children[static_cast<size_t>(rank)];
    const auto code = child.wait(limit);
    EXPECT_TRUE(code == 0) << "rank " << rank << " ended with " << code.value_or(-1) << ":\n"
                           << child.output();
  }
}

inline void expect_success(int world, const Environment& environment = {}) {
  expect_success(TempFolder(), world, environment);
}

/// One of two processes is sent a signal while the other is in the middle of things; that one's last words.
inline std::string last_words(int victim, int signal, const std::string& busy_with,
                              Environment environment = {}) {
  using Clock = std::chrono::steady_clock;
  environment["TIGHTLOOP_TEST_VICTIM"] = std::to_string(victim);
  environment["TIGHTLOOP_TEST_BUSY"] = busy_with;
  TempFolder folder;
  auto children = start_children(folder, 2, environment);
  const auto start = Clock::now();
  while (!fs::exists(folder / "ready-0") || !fs::exists(folder / "ready-1")) {
    if (Clock::now() - start > std::chrono::seconds(30)) {
      ADD_FAILURE() << "not ready: " << children[0].output() << children[1].output();
      return {};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  children[static_cast<size_t>(victim)].kill(signal);
  auto& other = children[static_cast<size_t>(1 - victim)];
  const auto code = other.wait(std::chrono::seconds(10));
  EXPECT_TRUE(code == 0) << code.value_or(-1) << " after 10 s:\n" << other.output();
  return other.output();
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace tightloop::testing
