#include "data/read/json_array_reader.h"

#include "core/error.h"

namespace tightloop {

namespace {
constexpr size_t kReadSize = 1 << 16;
constexpr std::string_view kJsonBlank = " \t\r\n";
}  // namespace

JsonArrayRecords::JsonArrayRecords(std::vector<fs::path> paths, uint64_t max_bytes, bool bare)
    : paths_(std::move(paths)), max_bytes_(max_bytes), bare_(bare) {
  for (const fs::path& path : paths_) names_.push_back(path.string());
}

bool JsonArrayRecords::open_next() {
  if (file_ == paths_.size()) return false;
  stream_ = open_stream(paths_[file_++], &bytes_read_);
  chunk_.clear();
  element_.clear();
  at_ = byte_ = 0;
  line_ = 1;
  depth_ = bare_ ? 1 : 0;
  in_string_ = escaped_ = too_long_ = ended_ = false;
  return true;
}

// Hands out what was gathered (or, with `bad`, a word about why it cannot be); `rest` bytes of the file are
// lost with it.
void JsonArrayRecords::take(RecordBatch& batch, BadKind bad, std::string_view bytes, uint64_t rest) {
  Record record;
  record.file = static_cast<uint32_t>(file_ - 1);
  record.line = first_line_;
  record.byte = first_byte_;
  record.lost = byte_ - first_byte_ + rest;
  record.bad = too_long_ ? BadKind::kTooLong : bad;
  record.bytes = too_long_ ? "longer than data.max_record_bytes" : bytes;
  const bool blank = bytes.find_first_not_of(kJsonBlank) == bytes.npos;
  if (!blank || record.bad != BadKind::kNone) batch.add(record);
  element_.clear();
  too_long_ = false;
}

void JsonArrayRecords::scan(RecordBatch& batch) {
  const size_t before = batch.size();
  while (at_ < chunk_.size() && batch.size() == before) {
    const char c = chunk_[at_++];
    ++byte_;
    line_ += c == '\n';
    const bool mark = byte_ <= 3 && c == "\xef\xbb\xbf"[byte_ - 1];
    const bool between = depth_ == 0 || (bare_ && depth_ == 1 && element_.empty());
    if (between && (mark || kJsonBlank.find(c) != kJsonBlank.npos)) continue;
    if (depth_ == 0 && c == '[' && !ended_) {
      depth_ = 1;
      continue;
    }
    if (depth_ == 0) {
      first_line_ = line_, first_byte_ = byte_ - 1;
      take(batch, BadKind::kMalformedJson,
           "text outside of the list that the file should be: the rest of it is not read",
           chunk_.size() - at_ + stream_->left());
      chunk_.clear();
      stream_.reset();
      return;
    }
    if (depth_ == 1 && !in_string_ && (c == ',' || (c == ']' && !bare_))) {
      depth_ -= c == ']';
      ended_ = depth_ == 0;
      take(batch, BadKind::kNone, element_);
      continue;
    }
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '[' || c == '{') {
      ++depth_;
    } else if ((c == ']' || c == '}') && depth_ > 1) {
      --depth_;
    }
    if (element_.empty()) {
      if (kJsonBlank.find(c) != kJsonBlank.npos) continue;
      first_line_ = line_;
      first_byte_ = byte_ - 1;
    }
    if (element_.size() < max_bytes_) {
      element_ += c;
    } else {
      too_long_ = true;
    }
    if (bare_ && depth_ == 1 && !in_string_ && c == '}') take(batch, BadKind::kNone, element_);
  }
}

bool JsonArrayRecords::read(RecordBatch& batch, size_t records, size_t bytes) {
  const size_t before = batch.size();
  while (batch.size() < records && batch.bytes() < bytes) {
    if (!stream_ && !open_next()) break;
    if (at_ < chunk_.size()) {
      scan(batch);
      continue;
    }
    at_ = 0;
    chunk_.resize(kReadSize);
    std::string failure;
    try {
      chunk_.resize(stream_->read(chunk_.data(), kReadSize));
      if (!chunk_.empty()) continue;
      if (bare_ && depth_ == 1 && !in_string_) {
        take(batch, BadKind::kNone, element_);
      } else if (depth_ > 0) {
        failure = bare_ ? "the last object does not end" : "the list does not end";
      }
    } catch (const Error& error) {
      failure = error.what();
      chunk_.clear();
    }
    if (!failure.empty()) {
      if (depth_ == 1 && !in_string_)
        take(batch, BadKind::kNone, element_);  // whole, though nothing closes the list
      const uint64_t unended = element_.empty() ? 0 : byte_ - first_byte_;
      first_line_ = line_, first_byte_ = byte_;
      take(batch, BadKind::kBrokenFile, failure, unended + stream_->left());
    }
    stream_.reset();
  }
  return batch.size() > before;
}

}  // namespace tightloop
