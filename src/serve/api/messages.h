#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/render/chat.h"
#include "serve/api/fields.h"

namespace tightloop::serve {

/// The tokens that a model is asked with: `messages`, `tools` and `variables` (or null) of a request for a
/// chat, written by its template. Throws ApiError for what the form has no place for.
std::vector<int32_t> chat_prompt(const ChatTemplate& chat, const OrderedJson& messages,
                                 const OrderedJson& tools, const OrderedJson& variables);

}  // namespace tightloop::serve
