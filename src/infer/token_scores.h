#pragma once

#include <ATen/core/Tensor.h>

#include "model/language_model.h"

namespace tightloop {

/// What a model makes of given tokens, on the CPU, each (B, T).
struct TokenScores {
  at::Tensor loss;  // fp64: -log of the probability that the model gave the target
  at::Tensor rank;  // int64: 1 where the target was the likeliest token, 2 where one was likelier, ...
  at::Tensor best;  // int64: the token that the model held likeliest
};

/// Row r predicts targets[r][t] from inputs[r][0..t]; both are int64 (B, T). Logits are made for a few
/// hundred positions at a time and scored in fp32.
TokenScores score_tokens(LanguageModel& model, const at::Tensor& inputs_BT, const at::Tensor& targets_BT);

}  // namespace tightloop
