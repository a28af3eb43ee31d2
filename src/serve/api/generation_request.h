#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "infer/sample.h"
#include "serve/api/fields.h"

namespace tightloop::serve {

/// What a request may ask for, as the server is configured.
struct RequestLimits {
  int64_t max_tokens = 4096, choices = 16;
};

/// A request for answers of a model: that of a chat, or texts to continue.
struct GenerationRequest {
  bool chat = false;
  std::string model{};
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts{};  // of texts
  OrderedJson messages{}, tools{}, template_variables{};                   // of a chat
  SamplingConfig sampling{};            // its max_tokens is set once the prompt is known
  std::optional<int64_t> max_tokens{};  // none: as many as there is room for
  std::vector<std::string> stops{};
  std::vector<int32_t> stop_ids{};
  int64_t n = 1, logprobs = -1;
  bool stream = false, include_usage = false, echo = false, ignore_end = false;
  bool uses_tools = false, several_calls = true;
};

/// Bodies of /v1/chat/completions and /v1/completions. What would change the answer and is not known is
/// refused by its name. Throws ApiError.
GenerationRequest read_chat_request(const OrderedJson& body, const RequestLimits& limits);
GenerationRequest read_text_request(const OrderedJson& body, const RequestLimits& limits);

}  // namespace tightloop::serve
