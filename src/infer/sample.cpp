#include "infer/sample.h"

#include <ATen/ops/argmax.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tightloop {

namespace {

struct Sampled {
  float weight;
  int32_t id;
};

// Each token once, however often it was seen.
void penalise(float* logits, int64_t V, std::vector<int32_t> seen, double penalty) {
  std::ranges::sort(seen);
  const auto end = std::unique(seen.begin(), seen.end());
  for (auto id = seen.begin(); id != end; ++id) {
    if (*id < 0 || *id >= V) continue;
    float& score = logits[*id];
    score = static_cast<float>(score > 0 ? score / penalty : score * penalty);
  }
}

int32_t pick(std::span<const float> logits, const SamplingConfig& sampling, double draw) {
  const float best = *std::ranges::max_element(logits);
  std::vector<Sampled> kept(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((logits[id] - best) / sampling.temperature);
    kept[id] = {static_cast<float>(weight), static_cast<int32_t>(id)};
  }
  const auto likelier = [](const Sampled& a, const Sampled& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(kept.size())) {
    std::ranges::nth_element(kept, kept.begin() + sampling.top_k, likelier);
    kept.resize(sampling.top_k);
  }
  const auto sum = [](double total, const Sampled& candidate) { return total + candidate.weight; };
  if (sampling.top_p < 1) {
    std::ranges::sort(kept, likelier);
    const double wanted = sampling.top_p * std::accumulate(kept.begin(), kept.end(), 0.0, sum);
    double total = 0;
    size_t count = 0;
    while (count < kept.size() && total < wanted) total += kept[count++].weight;
    kept.resize(std::max<size_t>(1, count));
  }
  // The likeliest has the weight 1.
  if (sampling.min_p > 0) std::erase_if(kept, [&](const Sampled& c) { return c.weight < sampling.min_p; });
  double rest = draw * std::accumulate(kept.begin(), kept.end(), 0.0, sum);
  for (const Sampled& candidate : kept) {
    rest -= candidate.weight;
    if (rest < 0) return candidate.id;
  }
  return kept.back().id;
}

}  // namespace

std::vector<int32_t> sample(const at::Tensor& logits_BV, const SamplingConfig& sampling,
                            std::span<const std::vector<int32_t>> seen, std::span<const double> draws) {
  const int64_t B = logits_BV.size(0), V = logits_BV.size(1);
  const bool penalty = sampling.repetition_penalty != 1;
  std::vector<int32_t> ids;
  if (sampling.temperature == 0 && !penalty) {  // only the ids leave the device
    const auto best = logits_BV.argmax(-1).to(at::kCPU);
    for (int64_t row = 0; row < B; ++row)
      ids.push_back(static_cast<int32_t>(best.const_data_ptr<int64_t>()[row]));
    return ids;
  }
  auto scores = logits_BV.to(at::kCPU, at::kFloat).contiguous();
  if (penalty && scores.is_same(logits_BV)) scores = scores.clone();
  for (int64_t row = 0; row < B; ++row) {
    if (penalty)
      penalise(scores.mutable_data_ptr<float>() + row * V, V, seen[row], sampling.repetition_penalty);
    const std::span<const float> logits(scores.const_data_ptr<float>() + row * V, static_cast<size_t>(V));
    ids.push_back(sampling.temperature == 0
                      ? static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin())
                      : pick(logits, sampling, draws[row]));
  }
  return ids;
}

}  // namespace tightloop
