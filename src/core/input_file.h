#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

/// A file, a pipe or a terminal, open for reading. Opening never waits for long: a pipe that no program
/// writes to, a device, a folder and a socket are data errors that say so, like a file that cannot be read.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  /// Whether its bytes can be read again, and mapped.
  bool regular() const { return regular_; }
  /// Up to `size` bytes; 0 at the end. Waiting for a pipe can be interrupted.
  size_t read(char* buffer, size_t size);
  /// Puts bytes back that were read: they come again.
  void put_back(const std::string& bytes) { head_.insert(0, bytes); }

 private:
  void await_writer();

  std::filesystem::path path_;
  int descriptor_;
  bool regular_ = true;
  std::string head_;  // comes before what is left in the file
};

/// A data error unless `path` is a regular file (or a link to one): `why` ends the sentence.
void require_regular_file(const std::filesystem::path& path, const std::string& why);

}  // namespace tightloop
