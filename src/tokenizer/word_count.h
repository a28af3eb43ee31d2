#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/split.h"

namespace tightloop {

/// How often each word occurs.
class WordCount {
 public:
  WordCount() : slots_(1 << 12) {}

  void add(std::string_view word, uint64_t hash, int64_t count);
  void add(const WordCount& other);
  size_t size() const { return used_; }

  /// Calls visit(word, count) for each word, in no particular order.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.count) visit(std::string_view(bytes_).substr(slot.begin, slot.length), slot.count);
  }

 private:
  struct Slot {
    uint64_t hash = 0, begin = 0;
    int64_t count = 0;
    uint32_t length = 0;
  };
  void grow();

  std::vector<Slot> slots_;
  std::string bytes_;
  size_t used_ = 0;
};

/// The words of all documents, counted by several threads (0: all cores). Documents of more than a megabyte
/// are cut at ends of lines, words of more than a thousand bytes between characters, so that no input makes
/// it slow.
WordCount count_words(SplitPattern pattern, const std::function<bool(std::string&)>& next_document,
                      int threads, const std::function<void(size_t bytes)>& progress);

}  // namespace tightloop
