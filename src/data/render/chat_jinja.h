#pragma once

#include <string>

#include "data/render/chat.h"

namespace tightloop {

/// The chat template in Jinja, as tokenizer_config.json has it: transformers renders with it what
/// ChatTemplate renders. Empty where the tokenizer lacks the template's control tokens.
std::string chat_jinja(const ChatConfig& config, const Tokenizer& tokenizer);

}  // namespace tightloop
