#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tightloop {

/// xxHash3, 64 bits: for checksums of files and for splits by content.
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash64(std::string_view bytes, uint64_t seed = 0) {
  return hash64(bytes.data(), bytes.size(), seed);
}

class ProgressLine;
/// The same hash of many bytes, counted as it goes. Ctrl-C leaves it with Error(kInterrupted).
uint64_t hash64(std::string_view bytes, ProgressLine& progress);

/// The same hash over bytes that arrive piece by piece.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  void* state_;
};

/// CRC-32C (Castagnoli): the checksum of formats that ask for it.
uint32_t crc32c(std::string_view bytes);

/// 16 lower-case hexadecimal digits.
std::string hex64(uint64_t value);

}  // namespace tightloop
