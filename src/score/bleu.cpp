#include "score/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/version.h"
#include "tokenizer/unicode/lower_case.h"

namespace tightloop {

namespace {

BleuScore score(const BleuCounts& counts, bool effective_order) {
  BleuScore bleu;
  if (counts.hypothesis_words < counts.reference_words) {
    bleu.brevity_penalty = counts.hypothesis_words > 0
                               ? std::exp(1 - static_cast<double>(counts.reference_words) /
                                                  static_cast<double>(counts.hypothesis_words))
                               : 0;
  }
  if (std::ranges::all_of(counts.orders, [](const NgramCounts& order) { return order.shared == 0; }))
    return bleu;
  double smoothing = 1, logs = 0;
  size_t orders = BleuCounts::kOrder;
  for (size_t n = 0; n < BleuCounts::kOrder; ++n) {
    const auto total = static_cast<double>(counts.orders[n].hypothesis);
    if (total == 0) {
      if (!effective_order) return bleu;  // no run of that length at all
      break;
    }
    if (effective_order) orders = n + 1;
    const auto shared = static_cast<double>(counts.orders[n].shared);
    bleu.precisions[n] = shared > 0 ? 100 * shared / total : 100 / ((smoothing *= 2) * total);
    logs += std::log(bleu.precisions[n]);
  }
  bleu.score = std::min(100.0, bleu.brevity_penalty * std::exp(logs / static_cast<double>(orders)));
  return bleu;
}

}  // namespace

void BleuCounts::add(const BleuCounts& other) {
  hypothesis_words += other.hypothesis_words, reference_words += other.reference_words;
  for (size_t n = 0; n < kOrder; ++n) orders[n].add(other.orders[n]);
}

BleuCounts bleu_counts(std::string_view hypothesis, std::string_view reference, const BleuOptions& options) {
  std::unordered_map<std::string, char32_t> numbers;
  const auto numbered = [&](std::string_view sentence) {
    const std::string text =
        tokenize_for_bleu(options.lowercase ? lower_case(sentence) : std::string(sentence), options.tokens);
    std::u32string words;
    for (const auto word : split_words(text))
      words += numbers.try_emplace(std::string(word), static_cast<char32_t>(numbers.size())).first->second;
    return words;
  };
  const std::u32string ours = numbered(hypothesis), theirs = numbered(reference);
  BleuCounts counts;
  counts.hypothesis_words = static_cast<int64_t>(ours.size());
  counts.reference_words = static_cast<int64_t>(theirs.size());
  for (size_t n = 0; n < BleuCounts::kOrder; ++n) counts.orders[n] = count_ngrams(ours, theirs, n + 1);
  return counts;
}

BleuScore corpus_bleu(const BleuCounts& counts) { return score(counts, /*effective_order=*/false); }
BleuScore sentence_bleu(const BleuCounts& counts) { return score(counts, /*effective_order=*/true); }

std::string bleu_signature(const BleuOptions& options, bool sentences) {
  return fmt::format("nrefs:1|case:{}|eff:{}|tok:{}|smooth:exp|version:tightloop-{}",
                     options.lowercase ? "lc" : "mixed", sentences ? "yes" : "no", name_of(options.tokens),
                     kVersion);
}

}  // namespace tightloop
