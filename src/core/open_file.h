#pragma once

#include <filesystem>
#include <string>

namespace tightloop {

/// A file, a pipe or a terminal that is open for reading.
struct OpenedFile {
  int descriptor = -1;
  bool regular = true;  // its bytes can be read again, and mapped
  std::string head;     // bytes that were read already, of a pipe: they come before what read() gives
};

/// Never waits for long: a pipe that no program writes to, a device, a folder and a socket are data errors
/// that say so, like a file that cannot be read. The caller closes the descriptor.
OpenedFile open_for_reading(const std::filesystem::path& path);

/// A data error unless `path` is a regular file (or a link to one): `why` ends the sentence.
void require_regular_file(const std::filesystem::path& path, const std::string& why);

}  // namespace tightloop
