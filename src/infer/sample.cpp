#include "infer/sample.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"

namespace tightloop {

namespace {

struct Sampled {
  float weight;
  int32_t id;
};

// Each token once, however often it was seen.
void penalise(std::vector<float>& logits, std::vector<int32_t> seen, double penalty) {
  std::ranges::sort(seen);
  const auto end = std::unique(seen.begin(), seen.end());
  for (auto id = seen.begin(); id != end; ++id) {
    if (*id < 0 || *id >= static_cast<int64_t>(logits.size())) continue;
    float& score = logits[static_cast<size_t>(*id)];
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

std::vector<int32_t> sample(const at::Tensor& logits_BV, std::span<const SampleRow> rows) {
  const auto B = static_cast<int64_t>(rows.size()), V = logits_BV.size(1);
  const auto allowed = [&](const SampleRow& row) {
    return row.vocab_size > 0 ? std::min(V, row.vocab_size) : V;
  };
  std::vector<int32_t> ids;
  const bool greedy = std::ranges::all_of(rows, [&](const SampleRow& row) {
    return row.sampling->temperature == 0 && row.sampling->repetition_penalty == 1 &&
           allowed(row) == allowed(rows.front());
  });
  if (B > 0 && greedy) {  // only the ids leave the device
    const auto best = logits_BV.narrow(1, 0, allowed(rows.front())).argmax(-1).to(at::kCPU);
    for (int64_t row = 0; row < B; ++row)
      ids.push_back(static_cast<int32_t>(best.const_data_ptr<int64_t>()[row]));
    return ids;
  }
  const auto scores = logits_BV.to(at::kCPU, at::kFloat).contiguous();
  std::vector<float> penalised;
  for (int64_t i = 0; i < B; ++i) {
    const auto& [sampling, seen, draw, vocab_size] = rows[i];
    std::span<const float> logits(scores.const_data_ptr<float>() + i * V,
                                  static_cast<size_t>(allowed(rows[i])));
    if (sampling->repetition_penalty != 1) {
      penalised.assign(logits.begin(), logits.end());
      penalise(penalised, {seen.begin(), seen.end()}, sampling->repetition_penalty);
      logits = penalised;
    }
    ids.push_back(sampling->temperature == 0
                      ? static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin())
                      : pick(logits, *sampling, draw));
  }
  return ids;
}

double sample_draw(int64_t seed, uint64_t sample, uint64_t position) {
  const auto words = philox(static_cast<uint64_t>(seed), position, sample);
  return static_cast<double>((uint64_t{words[0]} << 21) ^ (words[1] >> 11)) * 0x1.0p-53;
}

LogProbabilities log_probabilities(const at::Tensor& logits_V, int32_t chosen, int64_t vocab_size,
                                   int64_t likeliest) {
  const auto allowed =
      vocab_size > 0 ? logits_V.narrow(0, 0, std::min(logits_V.size(0), vocab_size)) : logits_V;
  const auto all = at::log_softmax(allowed.to(at::kFloat), 0).cpu();
  const auto [values, ids] = at::topk(all, std::min(likeliest, all.size(0)));
  LogProbabilities told{.chosen = all.const_data_ptr<float>()[chosen]};
  for (int64_t i = 0; i < ids.size(0); ++i)
    told.likeliest.emplace_back(static_cast<int32_t>(ids.const_data_ptr<int64_t>()[i]),
                                values.const_data_ptr<float>()[i]);
  return told;
}

}  // namespace tightloop
