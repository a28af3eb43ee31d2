#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

/// The right to write into a folder, for one process at a time: a lock on the file `.lock` in it. The system
/// takes it back when the process ends, however that is, so that a crash locks nobody out.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";

  /// Tries once. A folder that does not exist is made; a usage error says why it cannot be.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Also where the file system has no locks: then a warning has said so.
  bool held() const { return descriptor_ >= 0; }
  /// Held, and certainly by no one else.
  bool exclusive() const { return exclusive_; }
  /// Whether the folder of that name is still the one that was locked.
  bool in_place() const;
  /// Who has it, where it is not held: "process 4711 on atlas".
  const std::string& owner() const { return owner_; }
  /// Who has the lock of a folder now, asked without taking it; empty where nobody does.
  static std::string holder(const std::filesystem::path& folder);
  /// Who left a lock that nobody is seen to hold, where that is a process of another machine: over a network
  /// its lock may not be seen from here. Empty where there is no such lock.
  static std::string left_elsewhere(const std::filesystem::path& folder);
  /// Tries again until it is held. Ctrl-C ends the waiting.
  void wait();

 private:
  void take();

  std::filesystem::path folder_;
  std::string owner_;
  int descriptor_ = -1;
  bool exclusive_ = false;
};

}  // namespace tightloop
