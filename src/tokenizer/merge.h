#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tightloop {

/// One rule of a byte-level BPE: `left` and `right`, side by side, become `result`.
struct MergeRule {
  int32_t left, right, result;
  bool operator==(const MergeRule&) const = default;
};

inline constexpr uint32_t kNoRank = (1u << 22) - 1;    // also the limit on how many rules there can be
inline constexpr int32_t kTokenLimit = (1 << 21) - 1;  // ids must be below

/// The rules as a hash table of 8-byte entries (left 21 bits, right 21 bits, rank 22 bits), half empty: most
/// questions are about pairs that are not there, and are answered by one cache line.
class MergeTable {
 public:
  /// Rules in order of rank. same_rank: rules with the same result share the rank of the first (tiktoken's
  /// way).
  MergeTable(std::span<const MergeRule> rules, bool same_rank);

  uint32_t rank(uint32_t left, uint32_t right) const {
    const uint64_t key = uint64_t{left} << 21 | right;
    for (uint64_t slot = hash(key);; ++slot) {
      const uint64_t entry = entries_[slot & mask_];
      if (entry >> 22 == key) return entry & kNoRank;
      if (entry == kEmpty) return kNoRank;
    }
  }
  uint32_t result(uint32_t rank) const { return results_[rank]; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  uint64_t hash(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) >> shift_; }

  std::vector<uint64_t> entries_;
  std::vector<uint32_t> results_;
  uint64_t mask_;
  int shift_;
};

/// Working memory of one thread for merge_symbols() and merge_long().
struct MergeScratch {
  std::vector<uint32_t> symbols, previous, next, ranks, window;
  std::vector<uint64_t> heap;
};

/// Applies the rules to `symbols`, lowest rank first and leftmost among equals, until none applies; the
/// symbols left are written to the front. Returns how many. For up to 64 symbols.
size_t merge_short(const MergeTable& table, uint32_t* symbols, size_t count);
/// The same for any number, in n log n.
size_t merge_heap(const MergeTable& table, uint32_t* symbols, size_t count, MergeScratch& scratch);

/// The same for a long run of bytes (byte b starts as the symbol byte_ids[b]), appended to `ids`, in linear
/// time and in little memory: by windows that overlap. Two encodings that share a token at the same place can
/// be joined there, because no rule was applied across any of their other bounds either; so each window
/// starts some tokens back in what is there already, and goes on from the first token that both have.
/// token_bytes[id] is how many bytes an id stands for.
void merge_long(const MergeTable& table, std::string_view bytes, std::span<const int32_t> byte_ids,
                std::span<const uint32_t> token_bytes, std::vector<int32_t>& ids, MergeScratch& scratch,
                size_t window = 2048);

}  // namespace tightloop
