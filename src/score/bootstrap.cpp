#include "score/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/interrupt.h"
#include "core/random.h"

namespace tightloop {

namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

BootstrapResult::System summary(double score, std::vector<double> scores) {
  std::ranges::sort(scores);
  const size_t cut = scores.size() / 40;
  return {score, mean(scores), (scores[scores.size() - cut - 1] - scores[cut]) / 2};
}

}  // namespace

BootstrapResult paired_bootstrap(uint32_t sentences, int samples, uint64_t seed, const SampleScore& first,
                                 const SampleScore& second) {
  std::vector<uint32_t> drawn(sentences);
  std::iota(drawn.begin(), drawn.end(), 0u);
  const double score_one = first(drawn), score_two = second(drawn);
  std::vector<double> ones, twos, differences;
  Random random(seed);
  for (int sample = 0; sample < samples; ++sample) {
    throw_if_interrupted();
    for (auto& number : drawn) number = static_cast<uint32_t>(random.below(sentences));
    ones.push_back(first(drawn)), twos.push_back(second(drawn));
    differences.push_back(std::abs(twos.back() - ones.back()));
  }
  const double usual = mean(differences), seen = std::abs(score_one - score_two);
  const auto larger =
      std::ranges::count_if(differences, [&](double difference) { return difference - usual > seen; });
  // Where there is no difference, every other one is as large.
  const double p_value = seen == 0 ? 1 : static_cast<double>(larger + 1) / static_cast<double>(samples + 1);
  return {summary(score_one, ones), summary(score_two, twos), p_value};
}

}  // namespace tightloop
