#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "score/bleu_words.h"
#include "score/ngrams.h"

namespace tightloop {

struct BleuOptions {
  BleuTokens tokens = BleuTokens::k13a;
  bool lowercase = false;
};

/// What BLEU needs to know of sentences; that of a corpus is the sum over its sentences.
struct BleuCounts {
  static constexpr size_t kOrder = 4;
  int64_t hypothesis_words = 0, reference_words = 0;
  std::array<NgramCounts, kOrder> orders{};

  void add(const BleuCounts& other);
};

/// From 0 to 100, with what it was made of.
struct BleuScore {
  double score = 0, brevity_penalty = 1;
  std::array<double, BleuCounts::kOrder> precisions{};
};

BleuCounts bleu_counts(std::string_view hypothesis, std::string_view reference, const BleuOptions& options);

/// sacreBLEU's BLEU with one reference: orders without a match are smoothed exponentially. A sentence is
/// scored over the orders that it is long enough for (effective order), a corpus over all four.
BleuScore corpus_bleu(const BleuCounts& counts);
BleuScore sentence_bleu(const BleuCounts& counts);

/// How the score was made, in the words of sacreBLEU's signatures.
std::string bleu_signature(const BleuOptions& options, bool sentences);

}  // namespace tightloop
