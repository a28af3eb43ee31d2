#include "core/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace tightloop {

namespace fs = std::filesystem;

namespace {

constexpr auto kPatience = std::chrono::seconds(2);  // for a program to open the pipe that it writes to
constexpr auto kPause = std::chrono::milliseconds(10);

// What the file is, for a sentence; nullptr for one that can be read.
const char* name_of(mode_t mode, int descriptor) {
  if (S_ISREG(mode) || S_ISFIFO(mode)) return nullptr;
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISSOCK(mode)) return "a socket";
  return descriptor >= 0 && ::isatty(descriptor) ? nullptr : "a device";
}

// Reading tells a pipe that somebody writes to (bytes, or none yet) from one that nobody has open (its end).
std::string await_writer(int descriptor) {
  char bytes[4096];
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < kPatience) {
    const ssize_t got = ::read(descriptor, bytes, sizeof bytes);
    if (got > 0) return {bytes, static_cast<size_t>(got)};
    if (got < 0 && errno == EAGAIN) return {};
    if (got < 0 && errno != EINTR) throw data_error("{}", std::strerror(errno));
    std::this_thread::sleep_for(kPause);
  }
  throw data_error("it is a pipe, and no program writes to it");
}

}  // namespace

OpenedFile open_for_reading(const fs::path& path) {
  // Without O_NONBLOCK, opening a pipe waits for ever.
  OpenedFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), true, {}};
  struct stat status {};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0) {
    const int failure = errno;
    const bool is_socket = ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
    if (file.descriptor >= 0) ::close(file.descriptor);
    throw data_error("cannot read '{}': {}.", path.string(),
                     is_socket ? "it is a socket" : std::strerror(failure));
  }
  file.regular = S_ISREG(status.st_mode);
  try {
    if (const char* name = name_of(status.st_mode, file.descriptor)) throw data_error("it is {}", name);
    if (S_ISFIFO(status.st_mode)) file.head = await_writer(file.descriptor);
  } catch (const Error& error) {
    ::close(file.descriptor);
    throw data_error("cannot read '{}': {}.", path.string(), error.what());
  }
  if (!file.regular) ::fcntl(file.descriptor, F_SETFL, O_RDONLY);  // from here on, wait for bytes
  return file;
}

void require_regular_file(const fs::path& path, const std::string& why) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw data_error("cannot read '{}': {}.", path.string(), std::strerror(errno));
  if (S_ISREG(status.st_mode)) return;
  const char* name = name_of(status.st_mode, -1);
  throw data_error("'{}' is {}, not a file: {}", path.string(), name ? name : "a pipe", why);
}

}  // namespace tightloop
