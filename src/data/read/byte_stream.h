#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/files.h"

namespace tightloop {

/// The bytes of a file from front to back, decompressed where the file is gzip or zstd (told by its first
/// bytes, not by its name).
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Up to `size` bytes; 0 at the end. A data error names a file that is damaged or cut short.
  virtual size_t read(char* buffer, size_t size) = 0;
  /// About how many bytes are still to come, unpacked: what is lost of a file that cannot be read on.
  virtual uint64_t left() const = 0;
};

/// Whether a file is gzip or zstd. A data error names one that cannot be read.
bool is_compressed(const fs::path& path);

/// A data error names a file that cannot be read. Bytes as they are taken from the disk are added to `read`,
/// which must outlive the stream.
std::unique_ptr<ByteStream> open_stream(const fs::path& path, std::atomic<uint64_t>* read = nullptr);

/// The first bytes of a file, unpacked and without a byte order mark; of a damaged one, what comes before the
/// damage, which its reader will name.
std::string head_of(const fs::path& path, size_t bytes = 1 << 16);

}  // namespace tightloop
