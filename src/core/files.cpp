#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "core/input_file.h"
#include "core/mapped_faults.h"

namespace tightloop {

namespace {

std::string reason() { return std::strerror(errno); }

}  // namespace

std::string read_file(const fs::path& path) {
  InputFile file(path);
  std::string bytes;
  struct stat status {};
  if (file.regular() && ::fstat(file.descriptor(), &status) == 0) bytes.reserve(status.st_size);
  char buffer[1 << 16];
  while (const size_t got = file.read(buffer, sizeof buffer)) bytes.append(buffer, got);
  return bytes;
}

namespace {

[[noreturn]] void refuse_reading(const fs::path& path, const std::error_code& failure) {
  throw data_error("cannot read '{}': {}.", path.string(), failure.message());
}

fs::file_type type_of(const fs::path& path) {
  std::error_code failure;
  const auto type = fs::status(path, failure).type();
  if (type == fs::file_type::none) refuse_reading(path, failure);
  return type;
}

/// Process ids mean something on one machine, in one container and until it is started again. Machines may
/// share a name, and the first container has the same number on all of them.
const std::string& machine() {
  static const std::string name = [] {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    std::error_code ignored;
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return hex64(hash64(host + fs::read_symlink("/proc/self/ns/pid", ignored).string() + boot)).substr(0, 8);
  }();
  return name;
}

std::vector<fs::path> entries_of(const fs::path& folder, std::error_code& failure) {
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    entries.push_back(entry->path());
  return entries;
}

constexpr std::string_view kPartial = ".partial-";
constexpr std::chrono::hours kForgotten{7 * 24};

/// A name of partial_path, taken apart.
struct PartialName {
  std::string machine;
  pid_t process = 0;
};

std::optional<PartialName> parse_partial(std::string_view name, std::string_view final_name) {
  constexpr size_t kMachine = 8;
  if (!name.starts_with(final_name) || !name.substr(final_name.size()).starts_with(kPartial)) return {};
  name.remove_prefix(final_name.size() + kPartial.size());
  const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (name.size() <= kMachine || name[kMachine] != '-' ||
      !std::ranges::all_of(name.substr(0, kMachine), is_hex))
    return {};
  PartialName parsed{std::string(name.substr(0, kMachine)), 0};
  const auto end = std::from_chars(name.data() + kMachine + 1, name.data() + name.size(), parsed.process).ptr;
  if (parsed.process <= 0 || end == name.data() + name.size() || *end != '-') return {};
  return parsed;
}

/// Whether nobody will go on writing it: its process is gone, or it is of another machine and old.
bool is_forgotten(const fs::path& path, const PartialName& name) {
  if (name.machine == machine()) return ::kill(name.process, 0) != 0 && errno == ESRCH;
  std::error_code failure;
  const auto written = fs::last_write_time(path, failure);
  return !failure && fs::file_time_type::clock::now() - written > kForgotten;
}

void remove_forgotten(const fs::path& path) {
  const std::string final_name = path.filename().string();
  const fs::path folder = path.parent_path();
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder.empty() ? "." : folder, ignored)) {
    const auto name = parse_partial(entry.filename().string(), final_name);
    if (name && is_forgotten(entry, *name)) fs::remove_all(entry, ignored);
  }
}

}  // namespace

fs::path partial_path(const fs::path& path) {
  static std::atomic<uint64_t> count = 0;
  remove_forgotten(path);
  return path.parent_path() /
         fmt::format("{}{}{}-{}-{}", path.filename().string(), kPartial, machine(), ::getpid(), count++);
}

bool path_exists(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }
bool is_file(const fs::path& path) { return type_of(path) == fs::file_type::regular; }
bool is_folder(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

std::vector<fs::path> folder_entries(const fs::path& folder) {
  if (!path_exists(folder)) return {};
  std::error_code failure;
  auto entries = entries_of(folder, failure);
  if (failure) refuse_reading(folder, failure);
  std::ranges::sort(entries);
  return entries;
}

uint64_t file_bytes(const fs::path& path) {
  std::error_code failure;
  const uint64_t bytes = fs::file_size(path, failure);
  if (failure) refuse_reading(path, failure);
  return bytes;
}

int64_t file_time(const fs::path& path) {
  std::error_code failure;
  const auto time = fs::last_write_time(path, failure);
  if (failure) refuse_reading(path, failure);
  return time.time_since_epoch().count();
}

void make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) throw usage_error("cannot make the folder '{}': {}.", path.string(), failure.message());
}

void move_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw checkpoint_error("cannot put '{}' in place: {}.", to.string(), reason());
}

void copy_path(const fs::path& from, const fs::path& to) {
  if (!is_folder(from)) return write_file_whole(to, read_file(from));
  make_folder(to);
  for (const fs::path& entry : folder_entries(from)) copy_path(entry, to / entry.filename());
}

void remove_path(const fs::path& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  if (failure) throw checkpoint_error("cannot remove '{}': {}.", path.string(), failure.message());
}

fs::path temporary_folder() {
  std::error_code failure;
  const auto folder = fs::temp_directory_path(failure);
  if (failure)
    throw usage_error("there is no folder for temporary files ({}): set TMPDIR to one that exists.",
                      failure.message());
  return folder;
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const bool failed = ::fsync(descriptor) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT);
  const auto why = reason();
  ::close(descriptor);
  // Some file systems cannot sync a folder and need not; that is no failure.
  if (failed) throw checkpoint_error("cannot write the folder '{}' to disk: {}.", folder.string(), why);
}

void write_file_whole(const fs::path& path, std::string_view bytes) {
  const fs::path beside = partial_path(path);
  try {
    FileWriter writer(beside, path);
    writer.write(bytes);
    writer.close();
    move_path(beside, path);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(path.parent_path());
}

namespace {

[[noreturn]] void refuse_writing(const fs::path& path) {
  throw checkpoint_error("cannot write '{}': {}.", path.string(), reason());
}

/// Hands all of it to `write`, which takes as much as it likes: bytes, their number, and how many came
/// before.
template <class Write>
void write_all(const fs::path& path, const void* data, size_t size, Write&& write) {
  const char* bytes = static_cast<const char*>(data);
  for (size_t done = 0; done < size;) {
    const ssize_t wrote = write(bytes + done, size - done, done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) refuse_writing(path);
    done += static_cast<size_t>(wrote);
  }
}

void close_synced(const fs::path& path, int& descriptor) {
  const bool synced = ::fsync(descriptor) == 0;
  const bool closed = ::close(std::exchange(descriptor, -1)) == 0;
  if (!synced || !closed) throw checkpoint_error("cannot write '{}' to disk: {}.", path.string(), reason());
}

}  // namespace

FileWriter::FileWriter(const fs::path& path, const fs::path& final_path)
    : path_(final_path.empty() ? path : final_path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) refuse_writing(path_);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t size) {
  write_all(path_, data, size, [this](const char* bytes, size_t count, size_t /*done*/) {
    return ::write(descriptor_, bytes, count);
  });
}

void FileWriter::close() { close_synced(path_, descriptor_); }

PieceWriter::PieceWriter(const fs::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) refuse_writing(path_);
}

PieceWriter::~PieceWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PieceWriter::write(uint64_t offset, const void* data, size_t size) {
  write_all(path_, data, size, [this, offset](const char* bytes, size_t count, size_t done) {
    return ::pwrite(descriptor_, bytes, count, static_cast<off_t>(offset + done));
  });
}

void PieceWriter::resize(uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) refuse_writing(path_);
}

void PieceWriter::close() { close_synced(path_, descriptor_); }

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  require_regular_file(path, "only a regular file can be mapped.");
  const InputFile file(path);
  struct stat status {};
  void* address = nullptr;
  bool good = ::fstat(file.descriptor(), &status) == 0 && S_ISREG(status.st_mode);
  if (!good) errno = EINVAL;
  if (good && status.st_size > 0) {
    address = ::mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    good = address != MAP_FAILED;
  }
  const auto why = reason();
  if (!good) throw data_error("cannot map '{}': {}.", path.string(), why);
  data_ = static_cast<const std::byte*>(address);
  size_ = status.st_size;
  if (data_) watch_map(data_, size_, path_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (!data_) return;
  unwatch_map(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {

std::string where_relative(const fs::path& path) {
  std::error_code failure;
  const fs::path here = fs::current_path(failure);
  return path.is_absolute() || failure ? "" : fmt::format(" in the folder '{}'", here.string());
}

}  // namespace

std::vector<fs::path> matches_of(const std::string& pattern) {
  if (path_exists(pattern)) return {pattern};  // also one with [ in its name
  if (pattern.find_first_of("*?[") == std::string::npos) return {};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_MARK, nullptr, &found);
  std::vector<fs::path> paths;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (const std::string path = found.gl_pathv[i]; !path.ends_with('/')) paths.emplace_back(path);
  ::globfree(&found);
  return paths;
}

std::vector<fs::path> expand_glob(const std::string& pattern) {
  std::vector<fs::path> paths = matches_of(pattern);
  if (!paths.empty()) return paths;
  const bool plain = pattern.find_first_of("*?[") == std::string::npos;
  throw data_error("{} '{}'{}.", plain ? "there is no file" : "no file matches", pattern,
                   where_relative(pattern));
}

}  // namespace tightloop
