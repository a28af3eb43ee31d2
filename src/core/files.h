#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

namespace fs = std::filesystem;

// Errors of the calls below are sentences with the system's reason (no permission, a loop of links, a name
// that is too long): data errors where something is read, checkpoint errors where something is written.

/// The whole file. A data error that names the file when it cannot be read.
std::string read_file(const fs::path& path);

/// Writes the file so that it appears whole or not at all: beside its place, synced, then renamed. Several
/// processes may write the same file at once: one of them is last. An error leaves the old file as it was.
void write_file_whole(const fs::path& path, std::string_view bytes);

/// A name beside `path` that no other writer has, to be renamed when what is written there is whole. What
/// processes that are gone left under such names is removed first.
fs::path partial_path(const fs::path& path);

/// What a name stands for; false where there is nothing.
bool path_exists(const fs::path& path);
bool is_file(const fs::path& path);
bool is_folder(const fs::path& path);

/// What is in a folder, in the order of names; nothing where there is no folder.
std::vector<fs::path> folder_entries(const fs::path& folder);

uint64_t file_bytes(const fs::path& path);
/// When it was last changed, in nanoseconds of the file system's clock.
int64_t file_time(const fs::path& path);

/// A folder that is there afterwards, with those above it. A usage error says why it cannot be made.
void make_folder(const fs::path& path);
/// Renames; a folder may take the name of an empty one.
void move_path(const fs::path& from, const fs::path& to);
/// Copies a file, or a folder with all that is in it, over what is there.
void copy_path(const fs::path& from, const fs::path& to);
/// Removes a file, or a folder with all that is in it, where it is there.
void remove_path(const fs::path& path);

/// Where files go that nobody keeps ($TMPDIR, or /tmp). A usage error where it is no folder.
fs::path temporary_folder();

/// Syncs a folder's entries (after a rename) to disk.
void sync_folder(const fs::path& folder);

/// A file written from front to back, checked at every write; close() syncs it. Errors name the file, or
/// `final_path` where it is written beside its place.
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path, const fs::path& final_path = {});
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

/// Writes pieces of a file that is there already, each where it belongs; several processes may do so at once.
/// close() syncs what was written.
class PieceWriter {
 public:
  explicit PieceWriter(const fs::path& path);
  ~PieceWriter();
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;
  void write(uint64_t offset, const void* data, size_t size);
  /// Makes the file so long; what was not written is zeros.
  void resize(uint64_t bytes);
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

/// Files that match a pattern with * ? [..], in name order; a plain path gives itself.
std::vector<fs::path> matches_of(const std::string& pattern);
/// The same; a pattern or path that names nothing is a data error.
std::vector<fs::path> expand_glob(const std::string& pattern);

}  // namespace tightloop
