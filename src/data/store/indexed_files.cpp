#include "data/store/indexed_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "core/error.h"

namespace tightloop {

class IndexedFiles::OpenFile {
 public:
  explicit OpenFile(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw data_error("cannot read '{}': {}.", path.string(), std::strerror(errno));
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void read(uint64_t byte, size_t size, char* to) const {
    while (size > 0) {
      const ssize_t got = ::pread(descriptor_, to, size, static_cast<off_t>(byte));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw data_error("cannot read '{}': {}.", path_.string(), std::strerror(errno));
      if (got == 0)
        throw data_error("'{}' became shorter since it was indexed: it ends before byte {}. Start again.",
                         path_.string(), byte + size);
      byte += got, to += got, size -= got;
    }
  }

 private:
  fs::path path_;
  int descriptor_;
};

// A handful of files stays open, however many there are.
struct IndexedFiles::Recent {
  static constexpr size_t kOpen = 64;
  std::mutex mutex;
  std::array<std::pair<uint32_t, std::shared_ptr<const OpenFile>>, kOpen> files;
};

IndexedFiles::IndexedFiles(std::vector<fs::path> files, std::shared_ptr<const KeptReader> kept)
    : files_(std::move(files)), kept_(std::move(kept)), recent_(std::make_unique<Recent>()) {}

IndexedFiles::~IndexedFiles() = default;

std::shared_ptr<const IndexedFiles::OpenFile> IndexedFiles::open(uint32_t file) const {
  std::lock_guard lock(recent_->mutex);
  auto& [number, opened] = recent_->files[file % Recent::kOpen];
  if (!opened || number != file) {
    opened = std::make_shared<const OpenFile>(files_.at(file));
    number = file;
  }
  return opened;
}

std::string IndexedFiles::name(const IndexEntry& entry) const {
  return entry.file() == IndexEntry::kKept ? "the records kept with the index"
                                           : files_.at(entry.file()).string();
}

void IndexedFiles::read(const IndexEntry& entry, char* to) const {
  if (entry.size == 0) return;
  if (entry.file() == IndexEntry::kKept) return kept_->read(entry.byte, entry.size, to);
  open(entry.file())->read(entry.byte, entry.size, to);
}

}  // namespace tightloop
