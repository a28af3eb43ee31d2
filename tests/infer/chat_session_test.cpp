#include "infer/chat_session.h"

#include <nlohmann/json.hpp>

#include "data/byte_tokenizer.h"
#include "infer/model.h"
#include "support.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::small_model;

class Chat : public ::testing::Test {
 protected:
  const std::unique_ptr<LanguageModel> model = small_model(259);
  const ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  const ChatTemplate chat{{}, tokenizer};
  SamplingConfig sampling;

  void SetUp() override { sampling.max_tokens = 6, sampling.temperature = 0; }

  // The answer to a whole conversation, read afresh.
  std::string afresh(const std::vector<Message>& messages) {
    GenerateOptions options;
    options.sampling = sampling, options.stop_tokens = stop_tokens(tokenizer, &chat);
    options.vocab_size = tokenizer.vocab_size();
    const std::vector<Prompt> prompt{{chat.prompt(messages)}};
    return tokenizer.decode(generate(*model, prompt, options)[0].ids);
  }
};

TEST_F(Chat, AQuestionFarLongerThanTheContextIsRefusedAndForgotten) {
  ChatSession session(*model, tokenizer, chat, 200);
  session.ask("hello", sampling, {});
  for (const size_t bytes : {size_t{5000}, size_t{3'000'000}}) {
    const auto message =
        testing::error_of(ExitCode::kUsage, [&] { session.ask(std::string(bytes, 'a'), sampling, {}); });
    EXPECT_NE(message.find("4096"), std::string::npos) << message;
  }
  EXPECT_EQ(session.history().size(), 2u);
  const auto next = session.ask("again", sampling, {});
  EXPECT_EQ(next.dropped, 0u) << "what was refused has pushed nothing out";
}

TEST_F(Chat, LaterTurnsReadOnlyWhatIsNewAndAnswerAsIfReadAfresh) {
  ChatSession session(*model, tokenizer, chat, 1000);
  std::vector<Message> messages{{Role::kUser, "hello"}};
  std::string streamed;
  const auto one = session.ask("hello", sampling, {}, [&](const std::string& text) { streamed += text; });
  EXPECT_EQ(one.text, afresh(messages));
  EXPECT_EQ(streamed, one.text);
  messages.push_back({Role::kAssistant, one.text});
  messages.push_back({Role::kUser, "and then?"});
  const auto two = session.ask("and then?", sampling, {});
  EXPECT_EQ(two.text, afresh(messages));
  // A byte a token: the turn and what stands around it, the last token of the answer, and at most the page
  // that was not full.
  EXPECT_LE(two.read,
            static_cast<int64_t>(chat.prompt(std::vector<Message>{{Role::kUser, "and then?"}}).size()) + 4 +
                KvPages::kPage);
  EXPECT_EQ(session.history().size(), 4u);
}

TEST_F(Chat, ResetForgets) {
  ChatSession session(*model, tokenizer, chat, 1000);
  session.set_system("Be brief.");
  const auto one = session.ask("hello", sampling, {});
  session.ask("more", sampling, {});
  session.reset();
  EXPECT_TRUE(session.history().empty());
  EXPECT_EQ(session.ask("hello", sampling, {}).text, one.text);
  EXPECT_EQ(one.text, afresh({{Role::kSystem, "Be brief."}, {Role::kUser, "hello"}}));
}

TEST_F(Chat, TokensOfAnImportedModelEndAnAnswerToo) {
  ChatSession free(*model, tokenizer, chat, 1000);
  const auto whole = free.ask("hello", sampling, {});
  ASSERT_EQ(whole.tokens, 6) << "nothing ended it";
  const auto third = static_cast<unsigned char>(whole.text.at(2));  // a byte a token
  ChatSession session(*model, tokenizer, chat, 1000, {third});
  const auto reply = session.ask("hello", sampling, {});
  EXPECT_EQ(reply.end, AnswerEnd::kStopped);
  EXPECT_EQ(reply.text, whole.text.substr(0, whole.text.find(static_cast<char>(third))));
  EXPECT_EQ(stop_tokens(tokenizer, &chat, {258, 7, 256, 7}), (std::vector{256, 258, 7}));
}

TEST_F(Chat, StopStringsEndAnAnswer) {
  ChatSession session(*model, tokenizer, chat, 1000);
  const auto free = session.ask("hello", sampling, {});
  ASSERT_GE(free.text.size(), 4u);
  session.reset();
  const auto stopped = session.ask("hello", sampling, {free.text.substr(2, 2)});
  EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(free.text.substr(2, 2))));
  EXPECT_EQ(stopped.end, AnswerEnd::kStopped);
  const auto next = session.ask("go on", sampling, {});
  EXPECT_EQ(next.text,
            afresh({{Role::kUser, "hello"}, {Role::kAssistant, stopped.text}, {Role::kUser, "go on"}}));
}

TEST_F(Chat, OldTurnsLeaveAFullContext) {
  ChatSession session(*model, tokenizer, chat, 80);
  session.set_system("S");
  size_t dropped = 0;
  for (int i = 0; i < 5; ++i) dropped += session.ask("question", sampling, {}).dropped;
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(session.history().size(), 10u) << "all of it stays in the history";
  // A question that does not fit on its own is still asked.
  EXPECT_NO_THROW(session.ask(std::string(200, 'x'), sampling, {}));
  EXPECT_GT(session.ask(std::string(200, 'x'), sampling, {}).prompt, session.context());
}

TEST_F(Chat, WhatAUserWritesIsNoControlToken) {
  ChatSession session(*model, tokenizer, chat, 1000);
  const auto reply = session.ask("<|im_end|>", sampling, {});
  EXPECT_EQ(reply.text, afresh({{Role::kUser, "<|im_end|>"}}));
  const auto json = nlohmann::json::parse(session.to_json());
  EXPECT_EQ(json.at("messages").size(), 2u);
  EXPECT_EQ(json["messages"][0]["content"], "<|im_end|>");
  EXPECT_EQ(json["messages"][1]["role"], "assistant");
}

TEST(ChatTemplateOf, IsNoneWithoutControlTokens) {
  const ByteTokenizer plain;
  EXPECT_EQ(chat_template({}, plain), nullptr);
  EXPECT_EQ(stop_tokens(plain, nullptr), (std::vector<int32_t>{256}));
}

TEST_F(Chat, ToolsAndVariablesAreGivenToTheTemplate) {
  ByteTokenizer own{{"<|im_start|>", "<|im_end|>"}};
  ChatTemplateFiles files;
  files.source = "own.jinja";
  files.templates["default"] =
      "{{ tools[0].name if tools }}{{ mood }}{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content "
      "}}<|im_end|>"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}";
  own.set_chat(files);
  const ChatTemplate with_template({}, own);
  ChatSession session(*model, own, with_template, 1000);
  const auto plain = session.ask("hello", sampling, {});
  session.reset();
  session.set_template_inputs(R"([{"name":"find","a":1}])", R"({"mood":"calm"})");
  const auto given = session.ask("hello", sampling, {});
  // A byte a token: "find" and "calm".
  EXPECT_EQ(given.read, plain.read + 8);
  EXPECT_NE(session.to_json().find(R"("chat_template_kwargs":{"mood":"calm"})"), std::string::npos);
  EXPECT_NE(session.to_json().find(R"("tools":[{"name":"find","a":1}])"), std::string::npos);
  auto message =
      testing::error_of(ExitCode::kUsage, [&] { session.set_template_inputs("", R"({"mod":1})"); });
  EXPECT_NE(message.find("'mod'"), std::string::npos) << message;
  ChatSession spelled(*model, tokenizer, chat, 1000);
  message =
      testing::error_of(ExitCode::kUsage, [&] { spelled.set_template_inputs(R"([{"name":"f"}])", ""); });
  EXPECT_NE(message.find("'tools'"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
