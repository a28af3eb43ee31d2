#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/api/generation_request.h"
#include "serve/engine/served_model.h"

namespace tightloop::serve {

/// A prompt as the model reads it.
struct ReadPrompt {
  std::vector<int32_t> ids;
  std::string text{};   // of a text that is to be repeated before its answer
  bool thinks = false;  // it has opened <think>
};

/// The most tokens that a model reads here: `limit`, or what fits into its context where that is 0.
int64_t longest_of(const ServedModel& model, int64_t limit);

/// A text, or token ids as they are, checked. Throws ApiError that names the field.
ReadPrompt read_prompt(const ServedModel& model, const std::variant<std::string, std::vector<int32_t>>& given,
                       int64_t longest, const std::string& field);

/// The prompts of a request: rendered, tokenized and checked. Takes a while, on any thread. Throws ApiError.
std::vector<ReadPrompt> prompts_of(const ServedModel& model, const GenerationRequest& request, int64_t limit);

}  // namespace tightloop::serve
