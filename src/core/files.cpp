#include "core/files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tightloop {

namespace {

std::string reason() { return std::strerror(errno); }

int open_for_reading(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw data_error("cannot read '{}': {}.", path.string(), reason());
  return descriptor;
}

}  // namespace

std::string read_file(const fs::path& path) {
  const int descriptor = open_for_reading(path);
  std::string bytes;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) bytes.reserve(status.st_size);
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const auto why = reason();
      ::close(descriptor);
      throw data_error("cannot read '{}': {}.", path.string(), why);
    }
    bytes.append(buffer, got);
  }
  ::close(descriptor);
  return bytes;
}

void make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) throw usage_error("cannot make the folder '{}': {}.", path.string(), failure.message());
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

void write_file_whole(const fs::path& path, std::string_view bytes) {
  fs::path beside = path;
  beside += ".partial";
  try {
    FileWriter writer(beside);
    writer.write(bytes);
    writer.close();
    if (::rename(beside.c_str(), path.c_str()) != 0)
      throw checkpoint_error("cannot put '{}' in place: {}.", path.string(), reason());
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(path.parent_path());
}

FileWriter::FileWriter(const fs::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw checkpoint_error("cannot write '{}': {}.", path.string(), reason());
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = ::write(descriptor_, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw checkpoint_error("cannot write '{}': {}.", path_.string(), reason());
    bytes += wrote;
    size -= wrote;
  }
}

void FileWriter::close() {
  const bool synced = ::fsync(descriptor_) == 0;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!synced || !closed) throw checkpoint_error("cannot write '{}' to disk: {}.", path_.string(), reason());
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int descriptor = open_for_reading(path);
  struct stat status {};
  void* address = nullptr;
  bool good = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (!good) errno = EINVAL;
  if (good && status.st_size > 0) {
    address = ::mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    good = address != MAP_FAILED;
  }
  const auto why = reason();
  ::close(descriptor);
  if (!good) throw data_error("cannot map '{}': {}.", path.string(), why);
  data_ = static_cast<const std::byte*>(address);
  size_ = status.st_size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::vector<fs::path> expand_glob(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) {
    if (!fs::exists(pattern)) throw data_error("there is no file '{}'.", pattern);
    return {pattern};
  }
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_MARK, nullptr, &found);
  std::vector<fs::path> paths;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (const std::string path = found.gl_pathv[i]; !path.ends_with('/')) paths.emplace_back(path);
  ::globfree(&found);
  if (paths.empty()) throw data_error("no file matches '{}'.", pattern);
  return paths;
}

}  // namespace tightloop
