#include "tokenizer/word_count.h"

#include <algorithm>

#include "core/hash.h"
#include "core/interrupt.h"
#include "core/threads.h"

namespace tightloop {

namespace {

constexpr size_t kBatchBytes = 16 << 20, kCutBytes = 1 << 20, kWordBytes = 1000;

/// Where a text of more than kCutBytes may end: after a line, if there is one.
size_t cut_length(std::string_view text) {
  if (text.size() <= kCutBytes) return text.size();
  const size_t line = text.find('\n', kCutBytes);
  return line == std::string_view::npos ? text.size() : line + 1;
}

bool inside_char(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

void WordCount::add(std::string_view word, uint64_t hash, int64_t count) {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.count == 0) {
      slot = {hash, bytes_.size(), count, static_cast<uint32_t>(word.size())};
      bytes_ += word;
      if (++used_ * 2 > slots_.size()) grow();
      return;
    }
    if (slot.hash == hash && std::string_view(bytes_).substr(slot.begin, slot.length) == word) {
      slot.count += count;
      return;
    }
  }
}

void WordCount::add(const WordCount& other) {
  other.each([&](std::string_view word, int64_t count) { add(word, hash64(word), count); });
}

void WordCount::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.count == 0) continue;
    size_t i = slot.hash & mask;
    while (slots_[i].count) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

WordCount count_words(SplitPattern pattern, const std::function<bool(std::string&)>& next_document,
                      int threads, const std::function<void(size_t bytes)>& progress) {
  if (threads <= 0) threads = available_cores();
  std::vector<WordCount> counts(threads);
  std::vector<std::string> documents;
  std::vector<std::string_view> texts;
  size_t batch = 0, seen = 0;
  const auto count_batch = [&] {
    texts.clear();
    for (std::string_view document : documents)
      while (!document.empty()) {
        const size_t length = cut_length(document);
        texts.push_back(document.substr(0, length));
        document.remove_prefix(length);
      }
    const size_t grain = std::max<size_t>(1, texts.size() / (8 * threads));
    parallel_for(texts.size(), threads, grain, [&](size_t begin, size_t end, int worker) {
      WordCount& mine = counts[worker];
      for (size_t i = begin; i < end; ++i) {
        throw_if_interrupted();
        scan(pattern, texts[i], [&](std::string_view word) {
          while (word.size() > kWordBytes) {
            size_t length = kWordBytes;
            while (length > kWordBytes - 4 && inside_char(word[length])) --length;
            mine.add(word.substr(0, length), hash64(word.substr(0, length)), 1);
            word.remove_prefix(length);
          }
          mine.add(word, hash64(word), 1);
        });
      }
    });
    seen += batch;
    batch = 0;
    documents.clear();
    if (progress) progress(seen);
  };
  std::string document;
  while (next_document(document)) {
    batch += document.size();
    documents.push_back(std::move(document));
    document.clear();
    if (batch >= kBatchBytes) count_batch();
  }
  count_batch();
  const auto largest =
      std::max_element(counts.begin(), counts.end(),
                       [](const WordCount& a, const WordCount& b) { return a.size() < b.size(); });
  for (auto other = counts.begin(); other != counts.end(); ++other)
    if (other != largest) largest->add(*other);
  return std::move(*largest);
}

}  // namespace tightloop
