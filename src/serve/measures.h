#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop::serve {

/// What a model makes of a text: each token with its loss (null of the first, which nothing predicts), its
/// rank, and the token that was likelier than all; their mean, and bits for each of `bytes`.
nlohmann::json score_json(LanguageModel& model, const Tokenizer& tokenizer, std::span<const int32_t> ids,
                          size_t bytes);

/// The mean of the states that the model's head would read.
std::vector<float> mean_state(LanguageModel& model, std::span<const int32_t> ids);

/// In base64, of the numbers' bytes.
std::string base64(std::span<const float> numbers);

}  // namespace tightloop::serve
