#include "data/read/line_reader.h"

#include <cstring>
#include <utility>

#include "core/error.h"

namespace tightloop {

namespace {
constexpr size_t kLineChunk = 1 << 18;
}

LineReader::LineReader(const fs::path& path, uint64_t max_bytes, std::atomic<uint64_t>* read)
    : stream_(open_stream(path, read)), max_bytes_(max_bytes) {
  while (!at_end_ && buffer_.size() < 3) fill();
  if (std::string_view(buffer_).starts_with("\xef\xbb\xbf")) used_ = next_byte_ = 3;
}

// More of the file behind what is in the buffer. False at the end.
bool LineReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, std::exchange(used_, 0));
  const size_t size = buffer_.size();
  buffer_.resize(size + kLineChunk);
  size_t got = 0;
  try {
    got = stream_->read(buffer_.data() + size, kLineChunk);
  } catch (const Error& error) {
    failure_ = error.what();
  }
  buffer_.resize(size + got);
  at_end_ = got == 0;
  return !at_end_;
}

LineReader::Status LineReader::next() {
  ++number_;
  byte_ = next_byte_;
  bool too_long = false;
  for (size_t seen = 0;;) {
    const size_t from = used_ + seen;
    const auto* newline =
        static_cast<const char*>(std::memchr(buffer_.data() + from, '\n', buffer_.size() - from));
    const size_t end = newline ? newline - buffer_.data() : buffer_.size();
    too_long |= end - used_ > max_bytes_ + 1;  // one more, for a \r
    if (newline || (at_end_ && end > used_ && failure_.empty())) {
      line_ = std::string_view(buffer_).substr(used_, end - used_);
      next_byte_ += line_.size() + (newline ? 1 : 0);
      used_ = end + (newline ? 1 : 0);
      if (line_.ends_with('\r')) line_.remove_suffix(1);
      return too_long || line_.size() > max_bytes_ ? Status::kTooLong : Status::kLine;
    }
    if (at_end_) {
      if (too_long && failure_.empty()) return Status::kTooLong;
      if (!failure_.empty()) next_byte_ += left();
      used_ = buffer_.size();  // a last line that was cut short is no line
      if (failure_.empty()) return Status::kEnd;
      buffer_ = std::exchange(failure_, {});
      line_ = buffer_;
      used_ = buffer_.size();
      return Status::kBroken;
    }
    seen = end - used_;
    if (too_long) {  // forget what was read of it
      next_byte_ += seen;
      used_ = end;
      seen = 0;
    }
    fill();
  }
}

std::vector<std::string> read_lines(const fs::path& path) {
  constexpr uint64_t kLongest = uint64_t{1} << 30;
  std::vector<std::string> lines;
  LineReader reader(path, kLongest);
  for (;;) {
    switch (reader.next()) {
      case LineReader::Status::kLine:
        lines.emplace_back(reader.line());
        break;
      case LineReader::Status::kEnd:
        return lines;
      case LineReader::Status::kTooLong:
        throw data_error("line {} of '{}' is longer than 1 GiB.", reader.number(), path.string());
      case LineReader::Status::kBroken:
        throw data_error("'{}' cannot be read from line {} on: {}", path.string(), reader.number(),
                         reader.line());
    }
  }
}

LineRecords::LineRecords(std::vector<fs::path> paths, uint64_t max_bytes)
    : paths_(std::move(paths)), max_bytes_(max_bytes) {
  for (const fs::path& path : paths_) names_.push_back(path.string());
}

bool LineRecords::read(RecordBatch& batch, size_t records, size_t bytes) {
  const size_t before = batch.size();
  while (batch.size() < records && batch.bytes() < bytes) {
    if (!lines_) {
      if (file_ == paths_.size()) break;
      lines_ = std::make_unique<LineReader>(paths_[file_++], max_bytes_, &bytes_read_);
    }
    const auto status = lines_->next();
    if (status == LineReader::Status::kEnd) {
      lines_.reset();
      continue;
    }
    Record record;
    record.file = static_cast<uint32_t>(file_ - 1);
    record.line = lines_->number();
    record.byte = lines_->byte();
    record.bytes = lines_->line();
    record.lost = lines_->passed();
    if (status == LineReader::Status::kTooLong) {
      record.bad = BadKind::kTooLong;
      record.bytes = "longer than data.max_record_bytes";
    } else if (status == LineReader::Status::kBroken) {
      record.bad = BadKind::kBrokenFile;
    }
    if (record.bad == BadKind::kNone) {
      if (record.bytes.find_first_not_of(" \t") == std::string_view::npos) continue;
      split(record);
    }
    batch.add(record);
  }
  return batch.size() > before;
}

}  // namespace tightloop
