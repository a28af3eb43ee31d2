#pragma once

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace tightloop {

/// The ids of words seen before: up to 15 bytes and 3 ids, 32 bytes each, two to a cache line. One thread's
/// own, of fixed size; a new word pushes out the older of the two where it belongs.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15, kMaxIds = 3;

  struct Key {
    uint64_t low, high;
    bool operator==(const Key&) const = default;
  };

  /// The bytes of a word, and its length in the last byte. `end`: where the text ends that the word is part
  /// of.
  static Key key_of(std::string_view word, const char* end) {
    Key key;
#ifdef __SSE2__
    if (end - word.data() >= 16) {
      alignas(16) static constexpr uint8_t kMasks[32] = {255, 255, 255, 255, 255, 255, 255, 255,
                                                         255, 255, 255, 255, 255, 255, 255, 255};
      const auto load = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
      const __m128i bytes = _mm_and_si128(load(word.data()), load(kMasks + 16 - word.size()));
      std::memcpy(&key, &bytes, 16);
    } else
#endif
    {
      static_cast<void>(end);
      key = {};
      std::memcpy(&key, word.data(), word.size());
    }
    key.high |= uint64_t{word.size()} << 56;
    return key;
  }

  struct alignas(32) Entry {
    Key key;
    int32_t ids[kMaxIds];
    uint32_t count;
  };

  WordCache() : lines_(new Line[kLines]()) {}

  const Entry* find(const Key& key) const {
    const Line& line = lines_[slot(key)];
    if (line.entries[0].key == key) return &line.entries[0];
    if (line.entries[1].key == key) return &line.entries[1];
    return nullptr;
  }

  void put(const Key& key, const int32_t* ids, size_t count) {
    Line& line = lines_[slot(key)];
    line.entries[1] = line.entries[0];
    Entry& entry = line.entries[0];
    entry.key = key;
    entry.count = static_cast<uint32_t>(count);
    std::memcpy(entry.ids, ids, count * sizeof *ids);
  }

 private:
  static constexpr int kBits = 14;
  static constexpr size_t kLines = size_t{1} << kBits;
  struct alignas(64) Line {
    Entry entries[2];
  };
  // No word has length 0, so the all-zero key of an empty entry is never asked for.
  static size_t slot(const Key& key) {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15ull) * (key.high ^ 0xD6E8FEB86659FD93ull);
    return static_cast<size_t>((static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) >>
                               (64 - kBits));
  }

  std::unique_ptr<Line[]> lines_;
};

}  // namespace tightloop
