#include "infer/generate.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/random.h"

namespace tightloop {

namespace {

at::Tensor ids_tensor(const std::vector<std::vector<int32_t>>& rows, at::Device device) {
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const auto B = static_cast<int64_t>(rows.size());
  return at::tensor(flat).view({B, static_cast<int64_t>(rows.front().size())}).to(device);
}

// Picks from one row of probabilities: the top_k best, then as many of those as make up top_p.
int32_t pick(std::span<const float> probabilities, const SamplingConfig& sampling, double draw) {
  std::vector<int32_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
  };
  if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(order.size())) {
    std::ranges::partial_sort(order, order.begin() + sampling.top_k, better);
    order.resize(sampling.top_k);
  } else if (sampling.top_p < 1) {
    std::ranges::sort(order, better);
  }
  double total = 0;
  for (const int32_t id : order) total += probabilities[id];
  if (sampling.top_p < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < order.size() && kept < sampling.top_p * total) kept += probabilities[order[count++]];
    order.resize(std::max<size_t>(1, count));
    total = kept;
  }
  double rest = draw * total;
  for (const int32_t id : order) {
    rest -= probabilities[id];
    if (rest < 0) return id;
  }
  return order.back();
}

}  // namespace

std::vector<int32_t> sample(const at::Tensor& logits_BV, const SamplingConfig& sampling,
                            std::span<const double> draws) {
  std::vector<int32_t> ids;
  if (sampling.temperature == 0) {
    const auto best = logits_BV.argmax(-1).to(at::kCPU);
    for (int64_t row = 0; row < best.size(0); ++row)
      ids.push_back(static_cast<int32_t>(best.data_ptr<int64_t>()[row]));
    return ids;
  }
  const auto scaled = logits_BV.to(at::kFloat).div(sampling.temperature);
  const auto probabilities = scaled.softmax(-1).to(at::kCPU).contiguous();
  const int64_t V = probabilities.size(1);
  for (int64_t row = 0; row < probabilities.size(0); ++row) {
    const std::span<const float> values(probabilities.data_ptr<float>() + row * V, static_cast<size_t>(V));
    ids.push_back(pick(values, sampling, draws[row]));
  }
  return ids;
}

std::vector<std::vector<int32_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           int32_t stop_token, const SamplingConfig& sampling,
                                           const std::function<void(size_t, int32_t)>& on_token) {
  std::vector<std::vector<int32_t>> answers(prompts.size());
  if (prompts.empty()) return answers;
  for (const auto& prompt : prompts) {
    if (prompt.empty()) throw usage_error("a prompt must have at least one token.");
    if (prompt.size() != prompts.front().size()) throw std::invalid_argument("prompts differ in length");
  }
  c10::InferenceMode inference;
  KvCache cache(model.config().layers);
  std::vector<Random> random;
  for (size_t row = 0; row < prompts.size(); ++row) random.emplace_back(sampling.seed, row);
  std::vector<bool> done(prompts.size());
  auto ids = ids_tensor(prompts, model.device());
  for (int64_t made = 0; made < sampling.max_tokens && !interrupted(); ++made) {
    const auto hidden = model.forward(ids, {.cache = &cache}).hidden_BTD;
    const auto logits = model.logits(hidden.select(1, hidden.size(1) - 1));
    std::vector<double> draws;
    for (auto& stream : random) draws.push_back(stream.uniform());
    const auto next = sample(logits, sampling, draws);
    std::vector<std::vector<int32_t>> rows;
    for (size_t row = 0; row < next.size(); ++row) {
      rows.push_back({next[row]});
      if (next[row] == stop_token) done[row] = true;
      if (done[row]) continue;
      answers[row].push_back(next[row]);
      if (on_token) on_token(row, next[row]);
    }
    if (std::ranges::all_of(done, std::identity{})) break;
    ids = ids_tensor(rows, model.device());
  }
  return answers;
}

}  // namespace tightloop
