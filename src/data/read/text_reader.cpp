#include "data/read/text_reader.h"

#include <algorithm>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr size_t kTextChunk = 1 << 18;
constexpr std::string_view kBlank = " \t\r\n\v\f";

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlank) == std::string_view::npos; }
bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
bool is_blank(char byte) { return kBlank.find(byte) != std::string_view::npos; }

}  // namespace

TextReader::TextReader(std::vector<fs::path> paths, TextOptions options)
    : options_(std::move(options)), paths_(std::move(paths)) {
  if (options_.documents == DocumentEnd::kSeparator && options_.separator.empty()) {
    throw usage_error("data.separator is empty: name the text between two documents.");
  }
  for (const fs::path& path : paths_) names_.push_back(path.string());
}

bool TextReader::open_next() {
  if (file_ == paths_.size()) return false;
  stream_ = open_stream(paths_[file_++], &bytes_read_);
  buffer_.clear();
  used_ = document_bytes_ = byte_ = 0;
  line_ = 1;
  at_end_ = false;
  first_ = true;
  fill();
  if (std::string_view(buffer_).starts_with("\xef\xbb\xbf")) used_ = byte_ = 3;
  return true;
}

void TextReader::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  // Enough for a piece and what must be seen behind it.
  while (!at_end_ && buffer_.size() < options_.piece + options_.separator.size() + kTextChunk) {
    const size_t size = buffer_.size();
    buffer_.resize(size + kTextChunk);
    size_t got = 0;
    try {
      got = stream_->read(buffer_.data() + size, kTextChunk);
    } catch (const Error& error) {
      failure_ = error.what();
    }
    buffer_.resize(size + got);
    at_end_ = got == 0;
  }
}

// Where the document in the buffer ends, npos if that cannot be seen yet; `next` is where the one after it
// starts.
size_t TextReader::find_end(size_t& next) const {
  const std::string_view text = std::string_view(buffer_).substr(used_);
  size_t end = std::string_view::npos;
  if (options_.documents == DocumentEnd::kLine) {
    end = text.find('\n');
    next = end + 1;
  } else if (options_.documents == DocumentEnd::kSeparator) {
    end = text.find(options_.separator);
    next = end + options_.separator.size();
  } else if (options_.documents == DocumentEnd::kBlankLine) {
    for (size_t newline = first_ ? 0 : text.find('\n'); newline < text.size();
         newline = text.find('\n', newline + 1)) {
      // Blank lines behind this one: the last line end that only white space leads to. (A document's own
      // start counts as a line end, so that blank lines before it are dropped.)
      const bool at_start = first_ && newline == 0 && text[0] != '\n';
      size_t last = newline, at = at_start ? 0 : newline + 1;
      bool found = first_ && newline == 0 && text[0] == '\n';
      for (; at < text.size() && is_blank(text[at]); ++at)
        if (text[at] == '\n') last = at, found = true;
      if (at == text.size() && !at_end_) return std::string_view::npos;  // there may be more of them
      if (found || at == text.size()) {
        end = newline;
        next = at == text.size() ? at : last + 1;
        break;
      }
    }
  }
  return end;
}

// The best place to cut a long document at or before `limit`.
size_t TextReader::piece_end(size_t limit) const {
  const std::string_view text = std::string_view(buffer_).substr(used_);
  const size_t earliest = limit / 2;
  for (size_t at = limit; at > earliest; --at)
    if (text[at - 1] == '\n' && at < text.size() && !is_blank(text[at])) return at;
  for (size_t at = limit; at > earliest; --at)
    if (text[at] == ' ' && !is_blank(text[at - 1]) && at + 1 < text.size() && !is_blank(text[at + 1]))
      return at;
  size_t at = limit;
  while (at + 4 > limit && at > 1 && is_continuation(text[at])) --at;
  return is_continuation(text[at]) ? limit : at;
}

bool TextReader::find_cut(Cut& cut) {
  size_t next = 0;
  size_t end = find_end(next);
  if (end == std::string::npos && !at_end_ &&
      buffer_.size() - used_ <= options_.piece + options_.separator.size()) {
    fill();
    end = find_end(next);
  }
  const size_t left = buffer_.size() - used_;
  if (end == std::string::npos && at_end_) {
    end = next = left;
    if (left == 0 && first_) return false;
  }
  // A document that has reached the longest length allowed ends here, whatever follows.
  const uint64_t room = std::min<uint64_t>(options_.piece, options_.max_document - document_bytes_);
  if (end != std::string::npos && end <= room) {
    cut = {end, next, true};
  } else {
    const size_t at = piece_end(std::min<uint64_t>(room, left));
    cut = {at, at, document_bytes_ + at >= options_.max_document || room < options_.piece};
  }
  return true;
}

void TextReader::emit(const Cut& cut, RecordBatch& batch) {
  std::string_view text = std::string_view(buffer_).substr(used_, cut.end);
  Record record;
  record.file = static_cast<uint32_t>(file_ - 1);
  record.line = line_;
  record.byte = byte_;
  if (cut.ends_document && options_.documents != DocumentEnd::kFile &&
      options_.documents != DocumentEnd::kSeparator) {
    while (text.ends_with('\r') || text.ends_with('\n')) text.remove_suffix(1);
  }
  record.bytes = text;
  record.first = first_;
  record.last = cut.ends_document;
  // A document that came in pieces is closed by its last one, even when that is blank.
  if (!is_blank(text) || !first_) batch.add(record);
  line_ += std::count(buffer_.begin() + used_, buffer_.begin() + used_ + cut.next, '\n');
  byte_ += cut.next;
  used_ += cut.next;
  first_ = cut.ends_document;
  document_bytes_ = cut.ends_document ? 0 : document_bytes_ + cut.end;
}

bool TextReader::read(RecordBatch& batch, size_t records, size_t bytes) {
  const size_t before = batch.size();
  while (batch.size() < records && batch.bytes() < bytes) {
    if (!stream_ && !open_next()) break;
    Cut cut;
    if (find_cut(cut)) {
      emit(cut, batch);
      continue;
    }
    if (!failure_.empty()) {
      Record record;
      record.bytes = failure_;
      record.file = static_cast<uint32_t>(file_ - 1);
      record.line = line_, record.byte = byte_;
      record.bad = BadKind::kBrokenFile;
      record.lost = stream_->left();
      batch.add(record);
      failure_.clear();
    }
    stream_.reset();
  }
  return batch.size() > before;
}

}  // namespace tightloop
