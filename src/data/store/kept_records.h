#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/files.h"

namespace tightloop {

/// Bytes of records that cannot be read again where they came from (compressed files, Parquet), kept on disk
/// in zstd windows of a fixed size: reading any of them costs one small window, whatever the file.
class KeptWriter {
 public:
  explicit KeptWriter(const fs::path& path);
  ~KeptWriter();

  /// Where the bytes will be found.
  uint64_t add(std::string_view bytes);
  void close();

 private:
  void write_window();

  FileWriter file_;
  void* state_;
  std::string window_, packed_;
  std::string windows_;  // where each starts in the file
  uint64_t written_ = 0, added_ = 0;
};

class KeptReader {
 public:
  explicit KeptReader(const fs::path& path);
  /// A data error says that the file is damaged. Safe from many threads.
  void read(uint64_t at, uint64_t size, char* to) const;

 private:
  uint64_t start_of(uint64_t window) const;

  MappedFile file_;
  uint64_t windows_ = 0, table_ = 0;
};

}  // namespace tightloop
