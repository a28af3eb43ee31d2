#include "serve/api/answer_json.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "serve/http/http_call.h"

namespace tightloop::serve {

namespace {

constexpr double kLeastLogprob = -9999;  // JSON has no infinity

double shown_logprob(float value) {
  return std::isfinite(value) ? std::max<double>(value, kLeastLogprob) : kLeastLogprob;
}

/// A token's text; bytes that are a part of a character become U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id) { return tokenizer.decode(std::span(&id, 1)); }

nlohmann::json token_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string text = token_text(tokenizer, id);
  nlohmann::json bytes = nlohmann::json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text}, {"logprob", shown_logprob(logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

nlohmann::json AnswerHead::object(bool piece) const {
  const char* kind = !chat ? "text_completion" : piece ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id},
          {"object", kind},
          {"created", created},
          {"model", model},
          {"choices", nlohmann::json::array()}};
}

std::string fresh_id(const std::string& prefix, int signs) {
  constexpr std::string_view kSigns = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  static thread_local std::mt19937_64 random{(uint64_t{std::random_device()()} << 32) ^
                                             std::random_device()()};
  std::string id = prefix;
  for (int i = 0; i < signs; ++i) id += kSigns[random() % kSigns.size()];
  return id;
}

nlohmann::json usage_json(const UsageCounts& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.made},
          {"total_tokens", usage.prompt + usage.made},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

const char* finish_reason(AnswerEnd end, bool calls) {
  if (end == AnswerEnd::kStopped) return calls ? "tool_calls" : "stop";
  return "length";
}

nlohmann::json chat_logprobs(const Tokenizer& tokenizer, std::span<const DecodedToken> tokens) {
  nlohmann::json content = nlohmann::json::array();
  for (const auto& token : tokens) {
    auto one = token_json(tokenizer, token.id, token.logprob);
    one["top_logprobs"] = nlohmann::json::array();
    for (const auto& [id, logprob] : token.likeliest)
      one["top_logprobs"].push_back(token_json(tokenizer, id, logprob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

nlohmann::json text_logprobs(const Tokenizer& tokenizer, std::span<const DecodedToken> tokens,
                             int64_t likeliest, size_t& offset) {
  nlohmann::json texts = nlohmann::json::array(), values = texts, tops = texts, offsets = texts;
  for (const auto& token : tokens) {
    const std::string text = token_text(tokenizer, token.id);
    texts.push_back(text), values.push_back(shown_logprob(token.logprob)), offsets.push_back(offset);
    // A character of several tokens begins with the first of them.
    offset += static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
    nlohmann::json top = nlohmann::json::object();
    for (const auto& [id, logprob] : token.likeliest) top[token_text(tokenizer, id)] = shown_logprob(logprob);
    top[text] = shown_logprob(token.logprob);  // also where it is not among them
    tops.push_back(std::move(top));
  }
  return {{"tokens", texts},
          {"token_logprobs", values},
          {"top_logprobs", likeliest > 0 ? tops : nlohmann::json()},
          {"text_offset", offsets}};
}

nlohmann::json calls_json(std::span<const ToolCall> calls, std::optional<size_t> first) {
  // Clients send it back with the result, and templates of Mistral refuse any other length.
  constexpr int kSignsOfCall = 9;
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    nlohmann::json call{{"id", fresh_id("", kSignsOfCall)},
                        {"type", "function"},
                        {"function", {{"name", calls[i].name}, {"arguments", calls[i].arguments}}}};
    if (first) call["index"] = *first + i;
    list.push_back(std::move(call));
  }
  return list;
}

}  // namespace tightloop::serve
