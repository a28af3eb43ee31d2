#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/render/chat.h"

namespace tightloop::serve {

/// The tokens that a model is asked with: `messages`, `tools` and `variables` (or null) of a request for a
/// chat, written by its template. Throws ApiError for what the form has no place for.
std::vector<int32_t> chat_prompt(const ChatTemplate& chat, const nlohmann::json& messages,
                                 const nlohmann::json& tools, const nlohmann::json& variables);

}  // namespace tightloop::serve
