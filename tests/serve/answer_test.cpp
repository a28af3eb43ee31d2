// What is told of answers beside their text.
#include <cctype>

#include "data/byte_tokenizer.h"
#include "serve/api/answer_json.h"
#include "serve/engine/answer_feed.h"
#include "support.h"

namespace tightloop {
namespace {

using namespace serve;

TEST(Answer, CallsHaveIdsThatEveryTemplateTakes) {
  const std::vector<ToolCall> calls{{"f", "{}"}, {"f", "{}"}};
  const auto json = calls_json(calls);
  for (const auto& call : json) {
    const std::string id = call["id"].get<std::string>();
    EXPECT_EQ(id.size(), 9u) << "templates of Mistral refuse others";
    EXPECT_TRUE(std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c); })) << id;
  }
  EXPECT_NE(json[0]["id"], json[1]["id"]);
}

TEST(Answer, OffsetsOfTokensCountCharacters) {
  const testing::ByteTokenizer tokenizer{{}};
  std::vector<DecodedToken> tokens;
  for (const char byte : std::string("é🙂a")) tokens.push_back({.id = static_cast<unsigned char>(byte)});
  size_t offset = 3;
  const auto json = text_logprobs(tokenizer, tokens, 0, offset);
  EXPECT_EQ(json["text_offset"], (nlohmann::json{3, 4, 4, 5, 5, 5, 5}));
  EXPECT_EQ(offset, 6u);
}

TEST(Answer, TheTokenThatWasChosenIsAmongTheLikeliest) {
  const testing::ByteTokenizer tokenizer{{}};
  const std::vector<DecodedToken> tokens{{.id = 'a', .logprob = -3, .likeliest = {{'b', -0.5f}}},
                                         {.id = 'b', .logprob = -0.5, .likeliest = {{'b', -0.5f}}}};
  size_t offset = 0;
  EXPECT_EQ(text_logprobs(tokenizer, tokens, 1, offset)["top_logprobs"],
            (nlohmann::json{{{"a", -3.0}, {"b", -0.5}}, {{"b", -0.5}}}));
  EXPECT_TRUE(text_logprobs(tokenizer, tokens, 0, offset)["top_logprobs"].is_null());
}

TEST(Answer, TheTimeToTheFirstTokenBeginsWithTheRequest) {
  const testing::ByteTokenizer tokenizer{{}};
  AnswerTimes times;
  const auto asked = std::chrono::steady_clock::now() - std::chrono::seconds(200);
  AnswerFeed feed(tokenizer, {}, {}, /*logprobs=*/false, /*eager=*/false, times, asked, [] {});
  feed.on_token({.id = 'a'});
  feed.on_token({.id = 'b'});
  const auto text = [](const TimeHistogram& times) { return times.text("t", "model=\"m\""); };
  EXPECT_NE(text(times.first_token).find("t_sum{model=\"m\"} 200."), std::string::npos)
      << text(times.first_token);
  EXPECT_NE(text(times.between_tokens).find("t_sum{model=\"m\"} 0."), std::string::npos);
}

}  // namespace
}  // namespace tightloop
