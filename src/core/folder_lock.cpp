#include "core/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"

namespace tightloop {

namespace {

constexpr std::chrono::milliseconds kApart{100};

/// Whether the name still stands for the file that is open: who held it before may have removed it.
bool same_file(int descriptor, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

std::string this_machine() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format(" on {}", host);
}

std::string this_process() { return fmt::format("process {}{}", ::getpid(), this_machine()); }

std::string owner_in(int descriptor) {
  char text[320] = {};
  const ssize_t size = ::pread(descriptor, text, sizeof text - 1, 0);
  return size > 0 ? text : "another process";
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : folder_(folder) {
  make_folder(folder_);
  take();
}

void FolderLock::take() {
  constexpr int kTries = 3;
  constexpr std::chrono::milliseconds kLook{5};
  const fs::path path = folder_ / kFile;
  for (int tries = 0; descriptor_ < 0;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0)
      throw usage_error("cannot write in the folder '{}': {}.", folder_.string(), std::strerror(errno));
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK) {
      owner_ = owner_in(descriptor);
      ::close(descriptor);
      if (++tries == kTries) return;
      std::this_thread::sleep_for(kLook);  // somebody may only have looked (holder())
      continue;
    }
    if (!locked)
      log::warn("'{}' cannot be locked ({}): see to it that no other process writes there.", folder_.string(),
                std::strerror(errno));
    if (same_file(descriptor, path)) {
      descriptor_ = descriptor, exclusive_ = locked;
      const std::string text = this_process();  // for others to read; a full disk is no reason to stop
      if (::ftruncate(descriptor, 0) == 0) std::ignore = ::pwrite(descriptor, text.data(), text.size(), 0);
    } else {
      ::close(descriptor);
    }
  }
}

std::string FolderLock::holder(const fs::path& folder) {
  const int descriptor = ::open((folder / kFile).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  std::string holder;
  if (::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) holder = owner_in(descriptor);
  ::close(descriptor);
  return holder;
}

std::string FolderLock::left_elsewhere(const fs::path& folder) {
  const int descriptor = ::open((folder / kFile).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  const std::string owner = owner_in(descriptor);
  ::close(descriptor);
  return owner.starts_with("process ") && !owner.ends_with(this_machine()) ? owner : std::string();
}

void FolderLock::wait() {
  for (; !held(); take()) {
    throw_if_interrupted();
    std::this_thread::sleep_for(kApart);
  }
}

bool FolderLock::in_place() const { return held() && same_file(descriptor_, folder_ / kFile); }

FolderLock::~FolderLock() {
  if (!held()) return;
  if (in_place()) ::unlink((folder_ / kFile).c_str());
  ::close(descriptor_);
}

}  // namespace tightloop
