#include "infer/sample.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/decode/sample_tokens.h"

namespace tightloop {

std::vector<int32_t> sample(const at::Tensor& logits_BV, std::span<const SampleRow> rows) {
  using Settings = ops::SampleSettings;
  const auto B = static_cast<int64_t>(rows.size()), V = logits_BV.size(1);
  if (B == 0) return {};
  Settings settings{.values = at::zeros({B, Settings::kValues}, at::kDouble),
                    .numbers = at::zeros({B, Settings::kNumbers}, at::kLong)};
  if (std::ranges::any_of(rows, [](const SampleRow& row) { return row.sampling->repetition_penalty != 1; }))
    settings.seen = at::zeros({B, V}, at::kBool);
  for (int64_t i = 0; i < B; ++i) {
    const auto& [sampling, seen, sample, position, vocab_size] = rows[static_cast<size_t>(i)];
    double* const values = settings.values.mutable_data_ptr<double>() + i * Settings::kValues;
    values[Settings::kTemperature] = sampling->temperature;
    values[Settings::kTopP] = sampling->top_p;
    values[Settings::kMinP] = sampling->min_p;
    values[Settings::kPenalty] = sampling->repetition_penalty;
    int64_t* const numbers = settings.numbers.mutable_data_ptr<int64_t>() + i * Settings::kNumbers;
    numbers[Settings::kTopK] = sampling->top_k;
    numbers[Settings::kSeed] = sampling->seed;
    numbers[Settings::kSample] = static_cast<int64_t>(sample);
    numbers[Settings::kPosition] = static_cast<int64_t>(position);
    numbers[Settings::kVocabSize] = vocab_size;
    numbers[Settings::kSeenLine] = i;
    if (sampling->repetition_penalty == 1) continue;
    bool* const line = settings.seen.mutable_data_ptr<bool>() + i * V;
    for (const int32_t id : seen)
      if (id >= 0 && id < V) line[id] = true;
  }
  const auto device = logits_BV.device();
  settings.values = settings.values.to(device), settings.numbers = settings.numbers.to(device);
  if (settings.seen.defined()) settings.seen = settings.seen.to(device);
  const auto ids = ops::sample_tokens(logits_BV, settings).ids.to(at::kCPU, at::kInt);
  return {ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + B};
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
