#pragma once

#include <map>
#include <string>

#include "data/render/chat.h"

namespace tightloop {

/// The chat template in Jinja, as tokenizer_config.json has it: transformers renders with it what
/// ChatTemplate renders. It is "default"; a tokenizer's own for tools and the like are there as well. Empty
/// where the tokenizer lacks the template's control tokens.
std::map<std::string, std::string> chat_jinja(const ChatConfig& config, const Tokenizer& tokenizer);

}  // namespace tightloop
