#include "data/store/kept_records.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace tightloop {

namespace {
constexpr uint64_t kWindowBytes = 32 << 10;
constexpr int kLevel = 1;
}  // namespace

KeptWriter::KeptWriter(const fs::path& path) : file_(path), state_(::ZSTD_createCCtx()) {
  auto* state = static_cast<ZSTD_CCtx*>(state_);
  ::ZSTD_CCtx_setParameter(state, ZSTD_c_compressionLevel, kLevel);
  ::ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  packed_.resize(::ZSTD_compressBound(kWindowBytes));
}

KeptWriter::~KeptWriter() { ::ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(state_)); }

void KeptWriter::write_window() {
  const size_t size = ::ZSTD_compress2(static_cast<ZSTD_CCtx*>(state_), packed_.data(), packed_.size(),
                                       window_.data(), window_.size());
  if (::ZSTD_isError(size)) throw device_error("out of memory for zstd ({}).", ::ZSTD_getErrorName(size));
  windows_.append(reinterpret_cast<const char*>(&written_), sizeof written_);
  file_.write(packed_.data(), size);
  written_ += size;
  window_.clear();
}

uint64_t KeptWriter::add(std::string_view bytes) {
  const uint64_t at = added_;
  added_ += bytes.size();
  while (!bytes.empty()) {
    const size_t here = std::min<size_t>(bytes.size(), kWindowBytes - window_.size());
    window_.append(bytes.substr(0, here));
    bytes.remove_prefix(here);
    if (window_.size() == kWindowBytes) write_window();
  }
  return at;
}

void KeptWriter::close() {
  if (!window_.empty()) write_window();
  // The table of windows stands at the end: the start of each, the end of the last, and their number.
  const uint64_t count = windows_.size() / sizeof(uint64_t);
  file_.write(windows_);
  file_.write(&written_, sizeof written_);
  file_.write(&count, sizeof count);
  file_.close();
}

KeptReader::KeptReader(const fs::path& path) : file_(path) {
  const uint64_t size = file_.text().size();
  if (size >= 2 * sizeof(uint64_t))
    std::memcpy(&windows_, file_.text().data() + size - sizeof windows_, sizeof windows_);
  if (size < 2 * sizeof(uint64_t) || windows_ > size / sizeof(uint64_t) - 2)
    throw data_error("'{}' is damaged: remove the folder to index the files again.", path.string());
  table_ = size - (windows_ + 2) * sizeof(uint64_t);
}

uint64_t KeptReader::start_of(uint64_t window) const {
  uint64_t start = 0;
  std::memcpy(&start, file_.text().data() + table_ + window * sizeof start, sizeof start);
  return start;
}

void KeptReader::read(uint64_t at, uint64_t size, char* to) const {
  static thread_local std::string unpacked;
  unpacked.resize(kWindowBytes);
  while (size > 0) {
    const uint64_t window = at / kWindowBytes, from = at % kWindowBytes,
                   here = std::min(size, kWindowBytes - from);
    const uint64_t start = window < windows_ ? start_of(window) : 0;
    const uint64_t end = window < windows_ ? start_of(window + 1) : 0;
    const bool sound = start < end && end <= table_;
    const size_t got =
        sound ? ::ZSTD_decompress(unpacked.data(), kWindowBytes, file_.text().data() + start, end - start)
              : 0;
    if (!sound || ::ZSTD_isError(got) || got < from + here)
      throw data_error("'{}' is damaged near byte {}: remove the folder to index the files again.",
                       file_.path().string(), start);
    std::memcpy(to, unpacked.data() + from, here);
    at += here, to += here, size -= here;
  }
}

}  // namespace tightloop
