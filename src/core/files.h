#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

namespace fs = std::filesystem;

/// The whole file. A data error that names the file when it cannot be read.
std::string read_file(const fs::path& path);

/// Writes the file so that it appears whole or not at all: beside its place, synced, then renamed.
/// Throws Error(kCheckpoint) with the system's reason (disk full, no permission) and leaves the old file as
/// it was.
void write_file_whole(const fs::path& path, std::string_view bytes);

/// A folder that is there afterwards, with those above it. A usage error says why it cannot be made.
void make_folder(const fs::path& path);

/// Syncs a folder's entries (after a rename) to disk.
void sync_folder(const fs::path& folder);

/// A file written from front to back, checked at every write; close() syncs it. Errors name the file.
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  /// Flushes to disk and closes. Without it the file counts as abandoned.
  void close();

 private:
  fs::path path_;
  int descriptor_;
};

/// A read-only memory map of a whole file. An empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Files that match a pattern with * ? [..], in name order; a plain path gives itself. A pattern or path that
/// names nothing is a data error.
std::vector<fs::path> expand_glob(const std::string& pattern);

}  // namespace tightloop
