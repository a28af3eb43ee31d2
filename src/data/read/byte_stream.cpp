#include "data/read/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/input_file.h"

namespace tightloop {

namespace {

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const fs::path& path, std::atomic<uint64_t>* read = nullptr)
      : file_(path), counter_(read) {
    ::posix_fadvise(file_.descriptor(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  size_t read(char* buffer, size_t size) override {
    const size_t got = file_.read(buffer, size);
    taken_ += got;
    if (counter_) counter_->fetch_add(got, std::memory_order_relaxed);
    return got;
  }
  uint64_t taken() const { return taken_; }
  uint64_t left() const override {
    struct stat status {};
    if (!file_.regular() || ::fstat(file_.descriptor(), &status) != 0) return 0;
    const auto size = static_cast<uint64_t>(status.st_size);
    return size - std::min(size, taken_);
  }
  /// The next bytes, which read() gives again: a pipe cannot be rewound.
  std::string peek(size_t size) {
    std::string bytes(size, '\0');
    size_t got = 0;
    for (size_t more; got < size && (more = file_.read(bytes.data() + got, size - got)) > 0;) got += more;
    bytes.resize(got);
    file_.put_back(bytes);
    return bytes;
  }

 private:
  InputFile file_;
  std::atomic<uint64_t>* counter_;
  uint64_t taken_ = 0;
};

/// Of a compressed file that gave `given` bytes so far; `waiting` bytes of it are read and not unpacked.
uint64_t unpacked_rest(const PlainStream& file, size_t waiting, uint64_t given) {
  constexpr uint64_t kUnpacked = 3;  // times, where there is nothing to go by
  const uint64_t taken = file.taken() - waiting, rest = file.left() + waiting;
  if (given == 0 || taken == 0) return kUnpacked * (taken + rest);
  return static_cast<uint64_t>(static_cast<double>(rest) * static_cast<double>(given) /
                               static_cast<double>(taken));
}

constexpr size_t kCompressedChunk = 1 << 16;

class GzipStream : public ByteStream {
 public:
  GzipStream(const fs::path& path, std::unique_ptr<PlainStream> file)
      : path_(path), file_(std::move(file)), input_(kCompressedChunk) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK)
      throw device_error("out of memory for '{}'.", path.string());
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  size_t read(char* buffer, size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(buffer);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1 << 30));
    const uInt room = state_.avail_out;
    for (;;) {
      while (between_members_ && state_.avail_in > 0 &&
             *state_.next_in == 0) {  // some writers fill up with zeros
        ++state_.next_in, --state_.avail_in;
      }
      if (failure_.empty() && (!between_members_ || state_.avail_in > 0)) inflate_some();
      if (state_.avail_out < room) break;  // what came before the damage is good
      if (!failure_.empty()) throw data_error("{}", failure_);
      if (state_.avail_in > 0) continue;
      state_.avail_in = static_cast<uInt>(file_->read(input_.data(), input_.size()));
      state_.next_in = reinterpret_cast<Bytef*>(input_.data());
      if (state_.avail_in == 0) {
        if (!between_members_)
          throw data_error("'{}' is cut short: the gzip stream does not end.", path_.string());
        return 0;
      }
    }
    given_ += room - state_.avail_out;
    return room - state_.avail_out;
  }
  uint64_t left() const override { return unpacked_rest(*file_, state_.avail_in, given_); }

 private:
  // Takes what input there is; without any, inflate may still have output to give.
  void inflate_some() {
    between_members_ = false;
    const int status = ::inflate(&state_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      between_members_ = true;  // another member may follow
      const auto room = state_.avail_out;
      ::inflateReset(&state_);
      state_.avail_out = room;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      failure_ = fmt::format("'{}' is damaged: not a gzip stream any more ({}).", path_.string(),
                             state_.msg ? state_.msg : "no reason given");
    }
  }

  fs::path path_;
  std::unique_ptr<PlainStream> file_;
  std::vector<char> input_;
  z_stream state_{};
  bool between_members_ = true;
  std::string failure_;
  uint64_t given_ = 0;
};

class ZstdStream : public ByteStream {
 public:
  ZstdStream(const fs::path& path, std::unique_ptr<PlainStream> file)
      : path_(path), file_(std::move(file)), buffer_(kCompressedChunk), state_(::ZSTD_createDStream()) {
    ::ZSTD_initDStream(state_);
    ::ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 27);  // 128 MiB: a hostile file may ask for 2 GiB
  }
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }
  size_t read(char* buffer, size_t size) override {
    ZSTD_outBuffer out{buffer, size, 0};
    for (;;) {
      const size_t before = input_.pos;
      const size_t left = ::ZSTD_decompressStream(state_, &out, &input_);
      if (::ZSTD_isError(left)) {
        if (out.pos > 0) break;  // good until here; the next call fails again
        throw data_error("'{}' is damaged: not a zstd stream any more ({}).", path_.string(),
                         ::ZSTD_getErrorName(left));
      }
      if (out.pos > 0 || input_.pos > before) inside_frame_ = left != 0;
      if (out.pos > 0) break;
      if (input_.pos < input_.size) continue;
      input_ = {buffer_.data(), file_->read(buffer_.data(), buffer_.size()), 0};
      if (input_.size == 0) {
        if (inside_frame_)
          throw data_error("'{}' is cut short: the zstd stream does not end.", path_.string());
        return 0;
      }
    }
    given_ += out.pos;
    return out.pos;
  }
  uint64_t left() const override { return unpacked_rest(*file_, input_.size - input_.pos, given_); }

 private:
  fs::path path_;
  std::unique_ptr<PlainStream> file_;
  std::vector<char> buffer_;
  ZSTD_DStream* state_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_frame_ = false;
  uint64_t given_ = 0;
};

enum class Kind { kPlain, kGzip, kZstd };

// By the first bytes.
Kind kind_of(PlainStream& file) {
  const std::string start = file.peek(4);
  if (start.starts_with("\x1f\x8b")) return Kind::kGzip;
  return start == "\x28\xb5\x2f\xfd" ? Kind::kZstd : Kind::kPlain;
}

}  // namespace

bool is_compressed(const fs::path& path) {
  PlainStream file(path);
  return kind_of(file) != Kind::kPlain;
}

std::unique_ptr<ByteStream> open_stream(const fs::path& path, std::atomic<uint64_t>* read) {
  auto file = std::make_unique<PlainStream>(path, read);
  switch (kind_of(*file)) {
    case Kind::kGzip:
      return std::make_unique<GzipStream>(path, std::move(file));
    case Kind::kZstd:
      return std::make_unique<ZstdStream>(path, std::move(file));
    case Kind::kPlain:
      break;
  }
  return file;
}

std::string head_of(const fs::path& path, size_t bytes) {
  std::string head(bytes, '\0');
  size_t got = 0;
  try {
    const auto stream = open_stream(path);
    for (size_t more; got < bytes && (more = stream->read(head.data() + got, bytes - got)) > 0;) got += more;
  } catch (const Error&) {
  }
  head.resize(got);
  return head.starts_with("\xef\xbb\xbf") ? head.substr(3) : head;
}

}  // namespace tightloop
