#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/read/byte_stream.h"
#include "data/read/record.h"

namespace tightloop {

/// The lines of one file. Lines end at \n alone; a \r before it and a byte order mark at the start are
/// dropped.
class LineReader {
 public:
  enum class Status { kLine, kTooLong, kBroken, kEnd };

  LineReader(const fs::path& path, uint64_t max_bytes, std::atomic<uint64_t>* read = nullptr);

  /// kLine: `line()` is the next one, without its end. kTooLong: it had more than max_bytes and was passed
  /// over, never held in memory whole. kBroken: the file cannot be read on; `line()` says why, and kEnd
  /// follows.
  Status next();
  std::string_view line() const { return line_; }
  uint64_t number() const { return number_; }  // from 1
  uint64_t byte() const { return byte_; }      // where the line starts
  /// Bytes from there to the next line; of a broken file, about all that is left of it.
  uint64_t passed() const { return next_byte_ - byte_; }
  /// About how many bytes are still to come.
  uint64_t left() const { return buffer_.size() - used_ + stream_->left(); }

 private:
  bool fill();

  std::unique_ptr<ByteStream> stream_;
  const uint64_t max_bytes_;
  std::string buffer_;
  size_t used_ = 0;
  std::string_view line_;
  std::string failure_;
  uint64_t number_ = 0, byte_ = 0, next_byte_ = 0;
  bool at_end_ = false;
};

/// All lines of a file. A data error names the line where the file cannot be read on.
std::vector<std::string> read_lines(const fs::path& path);

/// Records that are lines of files, such as JSONL. Empty lines are no records.
class LineRecords : public RecordReader {
 public:
  LineRecords(std::vector<fs::path> paths, uint64_t max_bytes);
  bool read(RecordBatch& batch, size_t records, size_t bytes) override;
  const std::vector<std::string>& files() const override { return names_; }

 protected:
  /// What becomes of a line that is good so far.
  virtual void split(Record&) const {}

 private:
  std::vector<fs::path> paths_;
  std::vector<std::string> names_;
  uint64_t max_bytes_;
  size_t file_ = 0;
  std::unique_ptr<LineReader> lines_;
};

}  // namespace tightloop
