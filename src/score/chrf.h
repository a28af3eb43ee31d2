#pragma once

#include <array>
#include <string>
#include <string_view>

#include "score/ngrams.h"

namespace tightloop {

/// What chrF needs to know of sentences: runs of 1 to 6 characters, white space left out. That of a corpus is
/// the sum over its sentences.
struct ChrfCounts {
  static constexpr size_t kOrder = 6;
  std::array<NgramCounts, kOrder> orders{};

  void add(const ChrfCounts& other);
};

ChrfCounts chrf_counts(std::string_view hypothesis, std::string_view reference, bool lowercase);

/// sacreBLEU's chrF2, from 0 to 100: the F score (beta 2) of the mean precision and the mean recall over the
/// orders that both sides are long enough for.
double chrf(const ChrfCounts& counts);

/// How the score was made, in the words of sacreBLEU's signatures.
std::string chrf_signature(bool lowercase);

}  // namespace tightloop
