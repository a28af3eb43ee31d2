#pragma once

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <vector>

#include "model/language_model.h"

namespace tightloop::testing {

/// Greedy decoding the slow way: everything again for every token, no cache, one row.
inline std::vector<int32_t> slow_greedy(LanguageModel& model, std::vector<int32_t> ids, int32_t stop,
                                        int64_t tokens) {
  c10::NoGradGuard no_grad;
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < tokens) {
    const auto input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    const auto logits =
        model.logits(model.forward(input).hidden_BTD)[0][static_cast<int64_t>(ids.size()) - 1];
    const auto next = static_cast<int32_t>(logits.argmax().item<int64_t>());
    if (next == stop) break;
    made.push_back(next);
    ids.push_back(next);
  }
  return made;
}

}  // namespace tightloop::testing
