#include "serve/api/generation_request.h"

#include <chrono>

#include "fuzz.h"
#include "serve/api/fields.h"
#include "support.h"

namespace tightloop {
namespace {

using namespace serve;

const RequestLimits kLimits{.max_tokens = 100, .choices = 8};

GenerationRequest chat_of(const std::string& more) {
  return read_chat_request(
      read_json_body(R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}])" + more + "}"),
      kLimits);
}
GenerationRequest text_of(const std::string& body) {
  return read_text_request(read_json_body(body), kLimits);
}

template <class Body>
ApiError refusal_of(Body&& body) {
  try {
    body();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_TRUE(error.message.ends_with(".") || error.message.ends_with("?")) << error.message;
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(RequestBody, SaysWhereItIsNotJson) {
  const auto why = [](const std::string& body) { return refusal_of([&] { read_json_body(body); }).message; };
  EXPECT_EQ(why(R"({"n": 1,, "m": 2})"), "the body is not JSON: it is wrong at byte 9 of 17.");
  EXPECT_EQ(why(R"({"n": 1)"), "the body is not JSON: it ends too early, behind byte 7.");
  EXPECT_NE(why("").find("empty"), std::string::npos);
  EXPECT_NE(why(std::string(1000, '[')).find("nested too deeply"), std::string::npos);
  EXPECT_NE(why("[1e999]").find("too large"), std::string::npos);
  EXPECT_NE(why("[1]").find("not an object"), std::string::npos);
}

TEST(GenerationRequest, ReadsAChat) {
  const auto request = chat_of(
      R"(, "temperature": 0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "seed": -3,
      "max_completion_tokens": 9, "n": 2, "stop": ["a", "b"], "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4,
      "tools": [{"type": "function", "function": {"name": "f"}}], "parallel_tool_calls": false,
      "chat_template_kwargs": {"enable_thinking": false}, "stop_token_ids": [7])");
  EXPECT_TRUE(request.chat && request.stream && request.include_usage && request.uses_tools);
  EXPECT_FALSE(request.several_calls);
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.seed, -3);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stop_ids, std::vector<int32_t>{7});
  EXPECT_EQ(request.template_variables["enable_thinking"], false);
}

TEST(GenerationRequest, DefaultsAreOpenAIs) {
  const auto request = chat_of("");
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_FALSE(request.stream || request.uses_tools || request.max_tokens);
  EXPECT_NE(request.sampling.seed, chat_of("").sampling.seed) << "another answer each time";
  EXPECT_EQ(text_of(R"({"prompt": "a", "stop": "x"})").stops, std::vector<std::string>{"x"});
}

TEST(GenerationRequest, WhatClientsSendAndChangesNothingIsTaken) {
  chat_of(
      R"(, "user": "u", "metadata": {"a": "b"}, "store": false, "frequency_penalty": 0, "presence_penalty": 0.0,
      "logit_bias": {}, "response_format": {"type": "text"}, "tool_choice": "auto", "service_tier": "auto",
      "stop": null, "seed": null, "functions": [], "modalities": ["text"], "top_k": -1, "reasoning_effort": null)");
  text_of(R"({"prompt": "a", "suffix": null, "best_of": 1, "logit_bias": null, "user": "u"})");
  EXPECT_FALSE(chat_of(R"(, "tools": [{"function": {"name": "f"}}], "tool_choice": "none")").uses_tools);
}

TEST(GenerationRequest, WhatWouldChangeTheAnswerIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"frequency_penalty", "0.5"},
      {"presence_penalty", "-1"},
      {"logit_bias", R"({"1": 5})"},
      {"response_format", R"({"type": "json_schema", "json_schema": {}})"},
      {"response_format", R"({"type": "json_object"})"},
      {"tool_choice", R"("required")"},
      {"tool_choice", R"({"type": "function", "function": {"name": "f"}})"},
      {"functions", R"([{"name": "f"}])"},
      {"function_call", R"("auto")"},
      {"reasoning_effort", R"("high")"},
      {"modalities", R"(["text", "audio"])"},
      {"guided_json", "{}"},
      {"min_tokens", "3"}};
  for (const auto& [name, value] : cases)
    EXPECT_EQ(refusal_of([&] { chat_of(", \"" + name + "\": " + value); }).param, name);
  EXPECT_NE(refusal_of([&] { chat_of(R"(, "temprature": 1)"); }).message.find("'temperature'"),
            std::string::npos);
  EXPECT_EQ(refusal_of([&] { text_of(R"({"prompt": "a", "suffix": "b"})"); }).param, "suffix");
  EXPECT_EQ(refusal_of([&] { text_of(R"({"prompt": "a", "best_of": 3})"); }).param, "best_of");
  EXPECT_EQ(refusal_of([&] { text_of(R"({"prompt": "a", "echo": true, "logprobs": 1})"); }).param, "echo");
  EXPECT_EQ(refusal_of([&] { text_of(R"({"prompt": "a", "messages": []})"); }).param, "messages");
}

// Whoever sends a name of megabytes must not keep a thread busy with what it may have meant.
TEST(GenerationRequest, ALongNameIsRefusedAtOnce) {
  const auto body = nlohmann::json{{"prompt", "a"}, {std::string(size_t{1} << 24, 'x'), 1}};
  const auto began = std::chrono::steady_clock::now();
  const auto error = refusal_of([&] { read_text_request(body, kLimits); });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(error.param, std::string(64, 'x'));
}

TEST(GenerationRequest, ValuesThatAreWrongAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{{"temperature", "-1"},
                                                               {"temperature", "2.5"},
                                                               {"temperature", R"("hot")"},
                                                               {"temperature", "1e999"},
                                                               {"top_p", "1.1"},
                                                               {"top_k", "-2"},
                                                               {"top_k", "1.5"},
                                                               {"n", "0"},
                                                               {"n", "9"},
                                                               {"max_tokens", "0"},
                                                               {"max_tokens", "101"},
                                                               {"max_tokens", "18446744073709551615"},
                                                               {"stop", "[1]"},
                                                               {"stop", R"([""])"},
                                                               {"stop", "3"},
                                                               {"stop", "\"" + std::string(2000, 'x') + "\""},
                                                               {"stream", "1"},
                                                               {"stream_options", "{}"},
                                                               {"seed", "1.5"},
                                                               {"top_logprobs", "3"},
                                                               {"top_logprobs", "21"},
                                                               {"logprobs", "3"},
                                                               {"tools", "{}"},
                                                               {"tools", "[{}]"},
                                                               {"chat_template_kwargs", "[]"},
                                                               {"stop_token_ids", "[-1]"},
                                                               {"stop_token_ids", "[1e30]"},
                                                               {"model", "3"},
                                                               {"min_p", "null, \"min_p\": 2"}};
  for (const auto& [name, value] : cases) {
    if (value == "1e999") continue;  // no number of JSON's: below
    EXPECT_EQ(refusal_of([&] { chat_of(", \"" + name + "\": " + value); }).param, name) << value;
  }
  refusal_of([&] { chat_of(R"(, "temperature": 1e999)"); });
  refusal_of([&] { chat_of(R"(, "max_tokens": 3, "max_completion_tokens": 4)"); });
  for (const char* prompt : {"3", "[]", "[[]]", "[1.5]", "[-1]", "[3000000000]", "{}", R"(["a", 3])", "null"})
    EXPECT_EQ(refusal_of([&] { text_of(std::string(R"({"prompt": )") + prompt + "}"); }).param, "prompt")
        << prompt;
  EXPECT_EQ(refusal_of([&] { text_of(R"({"prompt": ["a", "b", "c"], "n": 3})"); }).param, "prompt");
  for (const char* messages : {"", R"(, "messages": [])", R"(, "messages": "Hi")"})
    EXPECT_EQ(refusal_of([&] {
                read_chat_request(read_json_body(std::string(R"({"model": "m")") + messages + "}"), kLimits);
              }).param,
              "messages");
}

TEST(GenerationRequest, ManyNamesAreRefusedAtOnce) {
  std::string body = "{\"metadata\": {\"last\": 0";
  for (int i = 0; i < 300'000; ++i) body += ", \"" + std::to_string(i) + "\": 0";
  EXPECT_THROW(serve::read_json_body(body + "}}"), serve::ApiError);
  const auto twice = serve::read_json_body("{\"b\": 1, \"a\": 2, \"b\": 3}");
  EXPECT_EQ(twice.dump(), "{\"b\":3,\"a\":2}");
}

TEST(GenerationRequest, BodiesThatAreNoObjectsOfJsonAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("3"), std::string("{\"a\": \xff}"),
        std::string("{\"prompt\": \"\xc3\"}"), std::string(R"({"prompt": "\ud800"})"), std::string("{} {}"),
        std::string(100000, '['), "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}"})
    refusal_of([&] { read_json_body(body); });
}

TEST(GenerationRequest, PromptsMayBeTextsOrIds) {
  EXPECT_EQ(text_of(R"({"prompt": "a"})").prompts.size(), 1u);
  EXPECT_EQ(text_of(R"({"prompt": ["a", "b"]})").prompts.size(), 2u);
  EXPECT_EQ(text_of(R"({"prompt": [1, 2, 3]})").prompts.size(), 1u);
  EXPECT_EQ(std::get<1>(text_of(R"({"prompt": [[1], [2, 3]]})").prompts[1]), (std::vector<int32_t>{2, 3}));
}

TEST(GenerationRequest, FuzzedBodiesAreReadOrRefused) {
  const std::vector<std::string> seeds{
      R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5, "stop": ["a"], "n": 2})",
      R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "tools":
      [{"type": "function", "function": {"name": "f", "parameters": {}}}], "stream": true, "stream_options": {}})",
      R"({"prompt": ["a", "b"], "max_tokens": 5, "logprobs": 2, "seed": 3, "stop": "x", "echo": true})",
      R"({"prompt": [[1, 2], [3]], "logit_bias": {"1": 2}, "user": "u"})"};
  const std::vector<std::string> words{"null",        "[", "{", "\"n\": -1", "1e400",
                                       "\"\\u0000\"", ",", ":", "true",      "99999999999999999999",
                                       "\xff"};
  uint64_t read = 0, refused = 0;
  testing::fuzz(seeds, testing::fuzz_runs(20000), words, [&](std::string& bytes, Random&) {
    for (const auto reads : {read_chat_request, read_text_request}) {
      try {
        const auto request = reads(read_json_body(bytes), kLimits);
        ASSERT_TRUE(request.n >= 1 && request.n <= kLimits.choices && request.sampling.temperature >= 0);
        ++read;
      } catch (const ApiError& error) {
        ASSERT_EQ(error.status, 400);
        ASSERT_FALSE(error.reply().body.empty());
        ++refused;
      }
    }
  });
  EXPECT_GT(read, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace tightloop
