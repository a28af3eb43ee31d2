#include "infer/text_stream.h"

#include <algorithm>

namespace tightloop {

namespace {

constexpr size_t kRecent = 8;

// Bytes at the end that begin a UTF-8 character without ending it.
size_t cut_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// The longest end of `text` that `stop` begins with.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size)
    if (text.ends_with(stop.substr(0, size))) return size;
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       std::span<const int32_t> before)
    : tokenizer_(tokenizer), stops_(std::move(stops)), recent_(before.begin(), before.end()) {
  forget();
}

// Keeps the last tokens, and before them as many as it takes to have some text.
void TextStream::forget() {
  for (size_t keep = kRecent; keep < recent_.size(); keep *= 2) {
    const std::span<const int32_t> last = std::span<const int32_t>(recent_).last(keep);
    const std::string text = tokenizer_.decode(last);
    if (text.find_first_not_of(" ") == text.npos) continue;
    recent_.erase(recent_.begin(), recent_.end() - static_cast<ptrdiff_t>(keep));
    break;
  }
  known_ = recent_.empty() ? 0 : tokenizer_.decode(recent_).size();
}

std::string TextStream::release(size_t bytes) {
  std::string out = pending_.substr(0, bytes);
  pending_.erase(0, bytes);
  text_ += out;
  return out;
}

std::string TextStream::add(int32_t id) {
  if (stopped_) return {};
  recent_.push_back(id);
  const std::string now = tokenizer_.decode(recent_);
  if (now.size() > known_) pending_ += now.substr(known_);
  known_ = now.size();
  if (recent_.size() >= 2 * kRecent) forget();

  // What ends first decides, and of those the longest: as if the text came byte by byte.
  size_t first = 0, end = std::string::npos, held = cut_character(pending_);
  for (const auto& stop : stops_) {
    held = std::max(held, begun(pending_, stop));
    const size_t at = pending_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    first = at + stop.size() == end ? std::min(first, at) : at;
    end = at + stop.size();
  }
  if (end == std::string::npos) return release(pending_.size() - held);
  stopped_ = true;
  std::string out = release(first);
  pending_.clear();
  return out;
}

std::string TextStream::finish() { return release(pending_.size()); }

}  // namespace tightloop
