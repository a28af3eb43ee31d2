#include "serve/api/generation_request.h"

#include <limits>
#include <random>

#include "serve/api/fields.h"

namespace tightloop::serve {

namespace {

constexpr int64_t kAnyId = std::numeric_limits<int32_t>::max();
constexpr size_t kMostStops = 16, kLongestStop = 1024;  // they are looked for at each token

std::vector<int32_t> ids_of(const OrderedJson& list, const std::string& name) {
  std::vector<int32_t> ids;
  for (const auto& one : list) {
    if (!one.is_number_integer() || one < 0 || one > kAnyId)
      throw wrong_field(name, "'{}' holds something that is not a token's id.", name);
    ids.push_back(one.get<int32_t>());
  }
  return ids;
}

/// How tokens are chosen, and when answers end.
void read_sampling(FieldReader& fields, const RequestLimits& limits, GenerationRequest& request) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  auto& sampling = request.sampling;
  sampling.temperature = fields.number("temperature", 1, 0, 2);
  sampling.top_p = fields.number("top_p", 1, 0, 1);
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.top_k = std::max<int64_t>(0, fields.integer("top_k", -1, kAnyId).value_or(0));  // -1: all, as 0
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  const auto seed = fields.integer("seed", kLeast, kAny);
  sampling.seed = seed ? *seed : static_cast<int64_t>(std::random_device()()) << 16 ^ std::random_device()();
  const auto most = fields.integer("max_tokens", 1, limits.max_tokens);
  const auto same = fields.integer("max_completion_tokens", 1, limits.max_tokens);
  if (most && same && *most != *same)
    throw wrong_field("max_completion_tokens", "'max_tokens' and 'max_completion_tokens' differ.");
  request.max_tokens = most ? most : same;
  request.stops = fields.texts("stop", kMostStops);
  for (const auto& stop : request.stops)
    if (stop.size() > kLongestStop)
      throw wrong_field("stop", "a stop string has {} bytes; at most {} are taken.", stop.size(),
                        kLongestStop);
  for (const auto& stop : request.stops)
    if (stop.empty()) throw wrong_field("stop", "a stop string is empty, which would stop every answer.");
  if (const auto* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > kMostStops)
      throw wrong_field("stop_token_ids", "'stop_token_ids' must be a list of at most {} ids.", kMostStops);
    request.stop_ids = ids_of(*ids, "stop_token_ids");
  }
  request.ignore_end = fields.truth("ignore_eos", false);
  request.n = fields.integer("n", 1, limits.choices).value_or(1);
  request.stream = fields.truth("stream", false);
  if (const auto* options = fields.find("stream_options")) {
    if (!options->is_object()) throw wrong_field("stream_options", "'stream_options' must be an object.");
    if (!request.stream) throw wrong_field("stream_options", "'stream_options' goes with \"stream\": true.");
    FieldReader inner(*options);
    request.include_usage = inner.truth("include_usage", false);
    inner.ignore({"include_obfuscation"});
    inner.refuse_unknown();
  }
  for (const char* name : {"frequency_penalty", "presence_penalty"})
    fields.refuse(name, {0, 0.0}, "'repetition_penalty' makes repetitions less likely here.");
  fields.refuse("logit_bias", {OrderedJson::object()}, "tokens cannot be biased here.");
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention"});
}

}  // namespace

GenerationRequest read_chat_request(const OrderedJson& body, const RequestLimits& limits) {
  FieldReader fields(body);
  GenerationRequest request{.chat = true};
  request.model = fields.text("model").value_or("");
  const auto* messages = fields.find("messages");
  if (!messages)
    throw ApiError{
        .message = "'messages' is missing.", .param = "messages", .code = "missing_required_parameter"};
  if (!messages->is_array() || messages->empty())
    throw wrong_field("messages", "'messages' must be a list of messages, and hold one at least.");
  request.messages = *messages;
  read_sampling(fields, limits, request);
  if (fields.truth("logprobs", false)) request.logprobs = 0;
  if (const auto top = fields.integer("top_logprobs", 0, 20)) {
    if (request.logprobs < 0 && *top > 0)
      throw wrong_field("top_logprobs", "'top_logprobs' goes with \"logprobs\": true.");
    if (request.logprobs >= 0) request.logprobs = *top;
  }
  if (const auto* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object())
      throw wrong_field("chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    request.template_variables = *variables;
  }
  if (const auto* tools = fields.find("tools")) {
    if (!tools->is_array()) throw wrong_field("tools", "'tools' must be a list.");
    for (const auto& tool : *tools)
      if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object() ||
          !tool["function"].contains("name") || !tool["function"]["name"].is_string())
        throw wrong_field("tools",
                          "a tool must be {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}.");
    request.tools = *tools;
  }
  fields.refuse("tool_choice", {"auto", "none"}, "the model decides; \"auto\" and \"none\" are taken.");
  const auto* choice = fields.find("tool_choice");
  request.uses_tools = request.tools.is_array() && !request.tools.empty() && (!choice || *choice != "none");
  request.several_calls = fields.truth("parallel_tool_calls", true);
  fields.refuse("response_format", {{{"type", "text"}}}, "answers are not held to a format here.");
  fields.refuse("modalities", {OrderedJson::array({"text"})}, "answers are text.");
  fields.refuse("functions", {OrderedJson::array()}, "'tools' has taken its place.");
  fields.refuse("function_call", {"none"}, "'tool_choice' has taken its place.");
  fields.refuse("reasoning_effort", {}, "a template's own switch can be set by 'chat_template_kwargs'.");
  fields.refuse_unknown();
  return request;
}

GenerationRequest read_text_request(const OrderedJson& body, const RequestLimits& limits) {
  FieldReader fields(body);
  GenerationRequest request;
  request.model = fields.text("model").value_or("");
  const auto* prompt = fields.find("prompt");
  if (!prompt)
    throw ApiError{
        .message = "'prompt' is missing.", .param = "prompt", .code = "missing_required_parameter"};
  const auto wrong = [] {
    return wrong_field(
        "prompt", "'prompt' must be a string, a list of strings, a list of token ids, or a list of such.");
  };
  if (prompt->is_string()) {
    request.prompts.emplace_back(prompt->get<std::string>());
  } else if (!prompt->is_array() || prompt->empty()) {
    throw wrong();
  } else if (prompt->front().is_number()) {
    request.prompts.emplace_back(ids_of(*prompt, "prompt"));
  } else {
    for (const auto& one : *prompt) {
      if (one.is_string())
        request.prompts.emplace_back(one.get<std::string>());
      else if (one.is_array() && !one.empty())
        request.prompts.emplace_back(ids_of(one, "prompt"));
      else
        throw wrong();
    }
  }
  read_sampling(fields, limits, request);
  const auto answers = request.n * static_cast<int64_t>(request.prompts.size());
  if (answers > limits.choices)
    throw wrong_field("prompt", "{} prompts with n = {} are {} answers; at most {} are given at once.",
                      request.prompts.size(), request.n, answers, limits.choices);
  request.logprobs = fields.integer("logprobs", 0, 20).value_or(-1);
  request.echo = fields.truth("echo", false);
  if (request.echo && request.logprobs >= 0)
    throw wrong_field(
        "echo",
        "'echo' with 'logprobs' is not supported: /v1/score tells what a prompt's tokens were worth.");
  fields.refuse("suffix", {""}, "texts are continued, not filled in.");
  fields.refuse("best_of", {request.n}, "all answers are given; 'n' says how many.");
  fields.refuse_unknown();
  return request;
}

}  // namespace tightloop::serve
