#include "score/ngrams.h"

#include <algorithm>
#include <vector>

namespace tightloop {

void NgramCounts::add(const NgramCounts& other) {
  hypothesis += other.hypothesis, reference += other.reference, shared += other.shared;
}

NgramCounts count_ngrams(std::u32string_view hypothesis, std::u32string_view reference, size_t n) {
  const auto sorted = [n](std::u32string_view text) {
    std::vector<std::u32string_view> runs;
    for (size_t i = 0; i + n <= text.size(); ++i) runs.push_back(text.substr(i, n));
    std::ranges::sort(runs);
    return runs;
  };
  const auto ours = sorted(hypothesis), theirs = sorted(reference);
  NgramCounts counts{static_cast<int64_t>(ours.size()), static_cast<int64_t>(theirs.size()), 0};
  for (auto a = ours.begin(), b = theirs.begin(); a != ours.end() && b != theirs.end();) {
    const auto order = *a <=> *b;
    counts.shared += order == 0;
    a += order <= 0;
    b += order >= 0;
  }
  return counts;
}

}  // namespace tightloop
