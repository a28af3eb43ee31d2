#include "core/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/interrupt.h"

namespace tightloop {

namespace fs = std::filesystem;

namespace {

constexpr auto kPatience = std::chrono::seconds(2);  // for a program to open the pipe that it writes to
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr int kGlance = 100;  // milliseconds of waiting between two looks for a signal

// What the file is, for a sentence; nullptr for one that can be read.
const char* name_of(mode_t mode, int descriptor) {
  if (S_ISREG(mode) || S_ISFIFO(mode)) return nullptr;
  if (S_ISDIR(mode)) return "it is a folder";
  if (S_ISSOCK(mode)) return "it is a socket";
  return descriptor >= 0 && ::isatty(descriptor) ? nullptr : "it is a device";
}

Error cannot_read(const fs::path& path, const char* why) {
  return data_error("cannot read '{}': {}.", path.string(), why);
}

}  // namespace

// Without O_NONBLOCK, opening a pipe waits for ever.
InputFile::InputFile(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_ < 0) {
    const int failure = errno;
    const bool socket = ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
    throw cannot_read(path, socket ? name_of(status.st_mode, -1) : std::strerror(failure));
  }
  try {
    if (::fstat(descriptor_, &status) != 0) throw cannot_read(path, std::strerror(errno));
    if (const char* name = name_of(status.st_mode, descriptor_)) throw cannot_read(path, name);
    regular_ = S_ISREG(status.st_mode);
    if (S_ISFIFO(status.st_mode)) await_writer();
    if (!regular_) ::fcntl(descriptor_, F_SETFL, O_RDONLY);  // from here on, wait for bytes
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { ::close(descriptor_); }

// Reading tells a pipe that somebody writes to (bytes, or none yet) from one that nobody has open (its end).
void InputFile::await_writer() {
  char bytes[4096];
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < kPatience) {
    throw_if_interrupted();
    const ssize_t got = ::read(descriptor_, bytes, sizeof bytes);
    if (got > 0) head_.assign(bytes, static_cast<size_t>(got));
    if (got > 0 || (got < 0 && errno == EAGAIN)) return;
    if (got < 0 && errno != EINTR) throw cannot_read(path_, std::strerror(errno));
    std::this_thread::sleep_for(kPause);
  }
  throw cannot_read(path_, "it is a pipe, and no program writes to it");
}

size_t InputFile::read(char* buffer, size_t size) {
  const size_t here = head_.copy(buffer, size);
  head_.erase(0, here);
  if (here == size || (here > 0 && !regular_)) return here;  // more of a pipe may take its time
  for (;;) {
    if (!regular_) {
      throw_if_interrupted();
      pollfd wanted{descriptor_, POLLIN, 0};
      if (::poll(&wanted, 1, kGlance) == 0) continue;
    }
    const ssize_t got = ::read(descriptor_, buffer + here, size - here);
    if (got >= 0) return here + static_cast<size_t>(got);
    if (errno != EINTR && errno != EAGAIN) throw cannot_read(path_, std::strerror(errno));
  }
}

void require_regular_file(const fs::path& path, const std::string& why) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw cannot_read(path, std::strerror(errno));
  if (S_ISREG(status.st_mode)) return;
  const char* name = name_of(status.st_mode, -1);
  throw data_error("'{}' cannot be used: {}, and {}", path.string(), name ? name : "it is a pipe", why);
}

}  // namespace tightloop
