#include "infer/token_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr int64_t kLogitsAtOnce = 1 << 24;  // 64 MiB of fp32

}  // namespace

TokenScores score_tokens(LanguageModel& model, const at::Tensor& inputs_BT, const at::Tensor& targets_BT) {
  c10::InferenceMode inference;
  const int64_t V = model.config().vocab_size, N = inputs_BT.numel();
  for (const auto& ids : {inputs_BT, targets_BT}) {
    if (N > 0 && (ids.min().item<int64_t>() < 0 || ids.max().item<int64_t>() >= V)) {
      throw data_error("there is a token outside of the model's vocabulary: ids go from 0 to {}.", V - 1);
    }
  }
  const auto hidden = model.forward(inputs_BT.to(model.device())).hidden_BTD.flatten(0, 1);
  const auto targets = targets_BT.to(model.device()).flatten().unsqueeze(1);
  auto loss = at::empty({N}, at::kDouble), rank = at::empty({N}, at::kLong), best = at::empty({N}, at::kLong);
  const int64_t chunk = std::max<int64_t>(1, kLogitsAtOnce / V);
  for (int64_t first = 0; first < N; first += chunk) {
    const int64_t rows = std::min(chunk, N - first);
    const auto logits = model.logits(hidden.narrow(0, first, rows)).to(at::kFloat);
    const auto wanted = logits.gather(1, targets.narrow(0, first, rows));
    loss.narrow(0, first, rows).copy_(at::logsumexp(logits, 1) - wanted.squeeze(1));
    rank.narrow(0, first, rows).copy_((logits > wanted).sum(1) + 1);
    best.narrow(0, first, rows).copy_(logits.argmax(1));
  }
  const auto shape = inputs_BT.sizes();
  return {loss.view(shape), rank.view(shape), best.view(shape)};
}

}  // namespace tightloop
