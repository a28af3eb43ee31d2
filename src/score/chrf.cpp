#include "score/chrf.h"

#include <fmt/format.h>

#include "core/version.h"
#include "score/bleu_words.h"
#include "tokenizer/unicode/lower_case.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

// Bytes that are not UTF-8 count as characters above all of Unicode.
std::u32string characters(std::string_view text) {
  constexpr char32_t kBytes = 0x110000;
  std::u32string all;
  for (const auto word : split_words(text)) {
    for (const char *p = word.data(), *end = p + word.size(); p < end;) {
      const Char c = decode_char(p, end);
      all += c.point == kInvalid ? kBytes + static_cast<uint8_t>(*p) : static_cast<char32_t>(c.point);
      p += c.length;
    }
  }
  return all;
}

}  // namespace

void ChrfCounts::add(const ChrfCounts& other) {
  for (size_t n = 0; n < kOrder; ++n) orders[n].add(other.orders[n]);
}

ChrfCounts chrf_counts(std::string_view hypothesis, std::string_view reference, bool lowercase) {
  const auto read = [&](std::string_view text) {
    return lowercase ? characters(lower_case(text)) : characters(text);
  };
  const std::u32string ours = read(hypothesis), theirs = read(reference);
  ChrfCounts counts;
  for (size_t n = 0; n < ChrfCounts::kOrder; ++n) {
    counts.orders[n] = count_ngrams(ours, theirs, n + 1);
    // Where the reference is too short for an order, what the hypothesis has of it does not count.
    if (counts.orders[n].reference == 0) counts.orders[n].hypothesis = 0;
  }
  return counts;
}

double chrf(const ChrfCounts& counts) {
  constexpr double kBetaSquared = 4;
  double precision = 0, recall = 0;
  int orders = 0;
  for (const NgramCounts& order : counts.orders) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += static_cast<double>(order.shared) / static_cast<double>(order.hypothesis);
    recall += static_cast<double>(order.shared) / static_cast<double>(order.reference);
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders, recall /= orders;
  return 100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall);
}

std::string chrf_signature(bool lowercase) {
  return fmt::format("nrefs:1|case:{}|eff:yes|nc:6|nw:0|space:no|version:tightloop-{}",
                     lowercase ? "lc" : "mixed", kVersion);
}

}  // namespace tightloop
