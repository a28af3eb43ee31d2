#pragma once

#include <cstdint>
#include <string_view>

namespace tightloop {

/// How many runs of n symbols two sequences have, and how many they share: each run of one is matched with
/// at most one equal run of the other.
struct NgramCounts {
  int64_t hypothesis = 0, reference = 0, shared = 0;
  void add(const NgramCounts& other);
};

/// Symbols are characters (chrF) or numbers that stand for words (BLEU).
NgramCounts count_ngrams(std::u32string_view hypothesis, std::u32string_view reference, size_t n);

}  // namespace tightloop
