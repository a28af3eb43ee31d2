#pragma once

#include <cstddef>
#include <memory>

#include "core/files.h"

namespace tightloop {

/// The bytes of a file from front to back, decompressed where the file is gzip or zstd (told by its first
/// bytes, not by its name).
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `size` bytes; 0 at the end. A data error names a file that is damaged or cut short.
  virtual size_t read(char* buffer, size_t size) = 0;
};

/// Whether a file is gzip or zstd. A data error names one that cannot be read.
bool is_compressed(const fs::path& path);

/// A data error names a file that cannot be read.
std::unique_ptr<ByteStream> open_stream(const fs::path& path);

}  // namespace tightloop
