#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/decoder.h"
#include "serve/api/answer_parts.h"
#include "tokenizer/tokenizer.h"

namespace tightloop::serve {

/// What all objects of one answer to a client have.
struct AnswerHead {
  bool chat = false;
  std::string id{}, model{};
  int64_t created = 0;

  /// An object without choices; `piece`: of a stream.
  nlohmann::json object(bool piece) const;
};

/// So many letters and digits that nobody has seen before, behind a prefix such as "chatcmpl-".
std::string fresh_id(const std::string& prefix, int signs = 24);

struct UsageCounts {
  int64_t prompt = 0, made = 0, cached = 0;
};
nlohmann::json usage_json(const UsageCounts& usage);

/// "stop", "length" or "tool_calls".
const char* finish_reason(AnswerEnd end, bool calls);

/// Log probabilities as chats have them, and as texts do: `offset` is the number of characters in the texts
/// of the tokens before these, and then of these, too.
nlohmann::json chat_logprobs(const Tokenizer& tokenizer, std::span<const DecodedToken> tokens);
nlohmann::json text_logprobs(const Tokenizer& tokenizer, std::span<const DecodedToken> tokens,
                             int64_t likeliest, size_t& offset);

/// Calls as a message has them; `first`: with their numbers from there on, as a stream has them.
nlohmann::json calls_json(std::span<const ToolCall> calls, std::optional<size_t> first = {});

}  // namespace tightloop::serve
