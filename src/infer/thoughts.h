#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Whether a prompt ends with an open <think>, so that the answer begins with a thought.
bool opens_thinking(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

/// What an answer says behind its thought, from <think> (or, where the prompt `opened` it, from its
/// beginning) to </think>: all of an answer without one, nothing of one whose thought does not end.
std::string_view without_thoughts(std::string_view answer, bool opened = false);

}  // namespace tightloop
