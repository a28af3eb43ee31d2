// Conversations that cannot be learned as they were meant are bad records with a reason, never learned
// otherwise.
#include <algorithm>
#include <fstream>
#include <functional>

#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/render/chat.h"
#include "data/render/render.h"
#include "support.h"
#include "tokenizer/byte_fallback.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

const ByteTokenizer& chat_records_tokenizer() {
  static const ByteTokenizer instance({"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|bos|>",
                                       "<|user_start|>", "<|user_end|>", "<|assistant_start|>",
                                       "<|assistant_end|>", "<|python_start|>", "<|python_end|>",
                                       "<|output_start|>", "<|output_end|>", "[INST]"});
  return instance;
}

ChatConfig chatml() {
  ChatConfig config;
  config.form = ChatForm::kChatml;
  return config;
}

struct How {
  DataConfig data{};
  ChatConfig chat = chatml();
};

Rendered rendered(std::string text, const How& how) {
  text.reserve(text.size() + kRecordPadding);
  Record record;
  record.bytes = text;
  Rendered out;
  const auto chat = std::make_shared<ChatTemplate>(how.chat, chat_records_tokenizer());
  make_json_renderer(how.data, chat_records_tokenizer(), chat)->render(record, out);
  return out;
}

// "kind: reason", or "" for a good record.
std::string fault(const std::string& text, const How& how = {}) {
  const Rendered out = rendered(text, how);
  if (out.bad == BadKind::kNone) return "";
  return fmt::format("{}: {}", bad_kind_name(out.bad), out.why);
}

std::string chat(const std::string& user, const std::string& assistant, const std::string& more = "") {
  return fmt::format(R"({{"messages":[{{"role":"user",{}}},{{"role":"assistant",{}}}]{}}})", user, assistant,
                     more);
}
std::string chat(const std::string& assistant) { return chat(R"("content":"hi")", assistant); }

void expect_named(const std::string& text, const std::string& kind, const std::string& name,
                  const How& how = {}) {
  const std::string why = fault(text, how);
  EXPECT_TRUE(why.starts_with(kind)) << text << "\n" << why;
  EXPECT_NE(why.find("'" + name + "'"), std::string::npos) << text << "\n" << why;
}

TEST(ChatRecords, AnUnknownFieldOfAMessageIsNamed) {
  expect_named(chat(R"("content":"yo","reasoning_content":"let me see")"), "unknown_field",
               "reasoning_content");
  expect_named(chat(R"("content":"","tool_calls":[{"id":"1"}])"), "unknown_field", "tool_calls");
  expect_named(chat(R"("content":null,"tool_calls":[{"id":"1"}])"), "unknown_field", "tool_calls");
  expect_named(chat(R"("content":"yo","weight":0)"), "unknown_field", "weight");
  expect_named(chat(R"("content":"yo","train":false)"), "unknown_field", "train");
  expect_named(chat(R"("content":"yo","value":"other")"), "unknown_field", "value");
  expect_named(chat(R"("content":"hi","name":"Ann")", R"("content":"yo")"), "unknown_field", "name");
  expect_named(R"({"messages":[{"role":"system","content":"S","tools":"[{}]"},)"
               R"({"role":"assistant","content":"yo"}]})",
               "unknown_field", "tools");
  expect_named(chat(R"("content":[{"type":"text","text":"yo","signature":"x"}])"), "unknown_field",
               "signature");
}

TEST(ChatRecords, FieldsThatSayNothingAreHarmless) {
  for (const char* nothing : {"null", "\"\"", "[]", "{}"})
    EXPECT_EQ(fault(chat(fmt::format(R"("content":"yo","tool_calls":{},"tools":{})", nothing, nothing),
                         R"("content":"yo")", "")),
              "");
  EXPECT_EQ(fault(chat(R"("content":"yo","id":7,"timestamp":"2024-01-01","language":"en")")), "");
  EXPECT_EQ(fault(chat(R"("content":"hi")", R"("content":"yo")",
                       R"(,"id":1,"source":"web","category":"x","tools":[],"system":"")")),
            "");
}

TEST(ChatRecords, AFieldOfARecordThatChangesItsMeaningIsNamed) {
  expect_named(chat(R"("content":"hi")", R"("content":"yo")", R"(,"tools":[{"name":"f"}])"), "unknown_field",
               "tools");
  expect_named(chat(R"("content":"hi")", R"("content":"yo")", R"(,"tools":"no JSON")"), "malformed_json",
               "tools");
  for (const char* name : {"functions", "images"})
    expect_named(chat(R"("content":"hi")", R"("content":"yo")", fmt::format(R"(,"{}":"something")", name)),
                 "unknown_field", name);
  expect_named(R"({"question":"Shorten it.","input":"A long text.","answer":"Text."})", "unknown_field",
               "input");
  How alpaca;
  alpaca.data.question_field = "instruction", alpaca.data.answer_field = "output";
  alpaca.data.format = RecordFormat::kQuestion;
  EXPECT_EQ(fault(R"({"instruction":"hi","input":"","output":"yo"})", alpaca), "");
  expect_named(R"({"instruction":"Shorten it.","input":"A long text.","output":"Text."})", "unknown_field",
               "input", alpaca);
  alpaca.data.question_field = "input";  // asked for: it is not left out
  EXPECT_EQ(fault(R"({"input":"hi","output":"yo"})", alpaca), "");
  expect_named(R"({"question":"Q?","choices":["x","y"],"answer":1,"context":"A passage."})", "unknown_field",
               "context");
  EXPECT_EQ(fault(R"({"text":"plain","tools":"any","context":"metadata of a text"})"), "");
}

TEST(ChatRecords, ASystemPromptBesideTheConversationComesFirst) {
  const auto ids = [](const std::string& text) { return rendered(text, {}).ids; };
  const std::string turns = R"({"from":"human","value":"hi"},{"from":"gpt","value":"yo"})",
                    system = R"({"from":"system","value":"Be brief."},)";
  const auto wanted = ids(R"({"conversations":[)" + system + turns + "]}");
  for (const char* name : {"system", "system_prompt"})
    EXPECT_EQ(ids(fmt::format(R"({{"{}":"Be brief.","conversations":[{}]}})", name, turns)), wanted);
  EXPECT_EQ(ids(R"({"system":"Be brief.","conversations":[)" + system + turns + "]}"), wanted);
  expect_named(R"({"system":"Be long.","conversations":[)" + system + turns + "]}", "unknown_field",
               "system");
  expect_named(R"({"system":"a","system_prompt":"b","conversations":[)" + turns + "]}", "unknown_field",
               "system_prompt");
  EXPECT_EQ(fault(R"({"system":[1],"conversations":[)" + turns + "]}"),
            "wrong_type: 'system' is not a string");
}

TEST(ChatRecords, ArgumentsOfCallsAreJson) {
  const auto call = [](const std::string& arguments) {
    return fault(chat(R"("content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":)" +
                      arguments + "}}]"));
  };
  const auto flat = [](const std::string& arguments) {
    return fault(chat(R"("content":"","tool_calls":[{"name":"f","arguments":)" + arguments + "}]"));
  };
  for (const auto& fault_of : {std::function(call), std::function(flat)}) {
    EXPECT_TRUE(fault_of(R"("{\"a\": 1")").starts_with("malformed_json: the 'arguments' of a call of 'f'"));
    EXPECT_TRUE(fault_of(R"("{'a': 1}")").starts_with("malformed_json"));
    for (const char* good : {R"("{\"a\": 1}")", R"({"a": 1})", R"("")", "null"})
      EXPECT_TRUE(fault_of(good).starts_with("unknown_field")) << fault_of(good);  // chatml writes no calls
  }
  const std::string text = R"("[{\"name\": \"f\", \"arguments\": \"{\"}]")";
  EXPECT_TRUE(fault(chat(R"("content":"","tool_calls":)" + text)).starts_with("malformed_json"));
}

TEST(ChatRecords, CallsOfShareGptAreThoseOfOpenAi) {
  How qwen;
  qwen.chat.form = ChatForm::kQwen3;
  const auto record = [](const std::string& turn) {
    return R"({"conversations":[{"from":"human","value":"w?"},)" + turn +
           R"(,{"from":"observation","value":"7"},{"from":"gpt","value":"It is 7."}]})";
  };
  const std::string call = R"({"type":"function","function":{"name":"f","arguments":{"a":1}}})";
  const std::string wanted =
      R"({"messages":[{"role":"user","content":"w?"},{"role":"assistant","content":"","tool_calls":[)" +
      call + R"(]},{"role":"tool","content":"7"},{"role":"assistant","content":"It is 7."}]})";
  const auto given = [&](const char* text) {
    return fmt::format(R"({{"from":"function_call","value":"{}"}})", text);
  };
  for (const char* text :
       {R"({\"name\":\"f\",\"arguments\":{\"a\":1}})", R"([{\"name\":\"f\",\"arguments\":{\"a\":1}}])"}) {
    EXPECT_EQ(fault(record(given(text)), qwen), "");
    EXPECT_EQ(rendered(record(given(text)), qwen).ids, rendered(wanted, qwen).ids) << text;
  }
  EXPECT_TRUE(fault(record(given("f(1)")), qwen).starts_with("malformed_json: a turn of function_call"));
  EXPECT_TRUE(fault(record(given("7")), qwen).starts_with("wrong_type: a turn of function_call"));
  EXPECT_TRUE(fault(record(given("[]")), qwen).starts_with("empty: a turn of function_call"));
  EXPECT_TRUE(fault(record(given(R"({\"name\":\"f\"})"))).starts_with("unknown_field")) << "chatml";
}

TEST(ChatRecords, FieldsCanBeLeftOutByName) {
  How how;
  how.data.ignore_fields = {"weight", "tools"};
  EXPECT_EQ(
      fault(chat(R"("content":"hi","weight":0)", R"("content":"yo","weight":1)", R"(,"tools":"x")"), how),
      "");
  expect_named(chat(R"("content":"yo","train":false)"), "unknown_field", "train", how);
}

TEST(ChatRecords, AnEmptyAnswerIsNotLearned) {
  EXPECT_TRUE(fault(chat(R"("content":"")")).starts_with("empty")) << fault(chat(R"("content":"")"));
  EXPECT_TRUE(fault(chat(R"("content":[{"type":"text","text":""}])")).starts_with("empty"));
  // One empty answer among good ones as well.
  EXPECT_TRUE(fault(R"({"messages":[{"role":"assistant","content":"a"},{"role":"user","content":"b"},)"
                    R"({"role":"assistant","content":""}]})")
                  .starts_with("empty"));
  EXPECT_EQ(fault(chat(R"("content":"")", R"("content":"yo")")), "") << "an empty question is only read";
}

TEST(ChatRecords, AControlTokenInAnAnswerIsNamed) {
  expect_named(chat(R"("content":"<think>so</think>yo")"), "control_token", "<think>");
  expect_named(chat(R"("content":"a << b <|im_end|>")"), "control_token", "<|im_end|>");
  expect_named(chat(R"("content":"[INST] x")"), "control_token", "[INST]");
  expect_named(R"({"question":"q","answer":"<think></think>a"})", "control_token", "<think>");
  // What others wrote is only read, and stays text.
  EXPECT_EQ(fault(chat(R"("content":"<think>?<|im_end|>")", R"("content":"a <b> [1]")")), "");
}

TEST(ChatRecords, ControlTokensOfAnswersFollowTheSetting) {
  const int32_t think = *chat_records_tokenizer().token_id("<think>"),
                end = *chat_records_tokenizer().token_id("<|im_end|>");
  const std::string record = chat(R"("content":"<think>?<|im_end|>")", R"("content":"<think>so</think>yo")");
  How how;
  how.chat.answer_tokens = AnswerTokens::kText;
  Rendered out = rendered(record, how);
  EXPECT_EQ(std::ranges::count(out.ids, think), 0);
  how.chat.answer_tokens = AnswerTokens::kParse;
  out = rendered(record, how);
  EXPECT_EQ(std::ranges::count(out.ids, think), 1) << "the assistant's, not the user's";
  EXPECT_EQ(std::ranges::count(out.ids, end), 2) << "of the template alone";
  const auto at = std::ranges::find(out.ids, think) - out.ids.begin();
  EXPECT_EQ(out.mask[at], 1);
}

// SentencePiece makes its own symbols of any text: it cannot spell them out.
TEST(ChatRecords, AControlTokenThatAUserSmugglesInIsNamed) {
  const auto model = testing::byte_fallback_model("bpe", "<|im_start|>,<|im_end|>");
  ASSERT_NE(model, nullptr);
  const auto chat_form = std::make_shared<ChatTemplate>(ChatConfig{}, *model);
  EXPECT_EQ(chat_form->smuggled_token("a <b> <|im_end|> c"), "<|im_end|>");
  EXPECT_EQ(chat_form->smuggled_token("a <b> [1] <s>"), "");
  const auto renderer = make_json_renderer({}, *model, chat_form);
  for (const bool evil : {false, true}) {
    std::string text =
        chat(fmt::format(R"("content":"the cat{}")", evil ? "<|im_end|>" : ""), R"("content":"a dog")");
    text.reserve(text.size() + kRecordPadding);
    Record record;
    record.bytes = text;
    Rendered out;
    renderer->render(record, out);
    EXPECT_EQ(bad_kind_name(out.bad), evil ? "control_token" : "none") << out.why;
  }
}

TEST(ChatRecords, PartsThatAreNoTextAreNamed) {
  expect_named(chat(R"("content":[{"type":"image_url","image_url":{"url":"x"}}])", R"("content":"yo")"),
               "wrong_type", "image_url");
  expect_named(chat(R"("content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yo"}])"),
               "wrong_type", "thinking");
}

TEST(ChatRecords, WhatATemplateCannotWriteIsNamed) {
  How own;
  own.chat.form = ChatForm::kOwn, own.chat.user = "Q: {content}\n",
  own.chat.assistant = "A: {content}<|im_end|>";
  const std::string tool = R"({"messages":[{"role":"user","content":"hi"},{"role":"tool","content":"42"},)"
                           R"({"role":"assistant","content":"yo"}]})";
  EXPECT_EQ(fault(tool), "");
  EXPECT_NE(fault(tool, own).find("tool"), std::string::npos) << fault(tool, own);
  // Code and its output run together where the template has no marks for them.
  const std::string code = chat(R"("content":[{"type":"text","text":"is "},{"type":"python","text":"2+2"}])");
  EXPECT_NE(fault(code).find("code"), std::string::npos) << fault(code);
  How nanochat;
  nanochat.chat.form = ChatForm::kNanochat;
  EXPECT_EQ(fault(code, nanochat), "");
  // A system turn that no user's turn follows has no place in nanochat's form.
  const std::string late = R"({"messages":[{"role":"user","content":"hi"},{"role":"system","content":"S"},)"
                           R"({"role":"assistant","content":"yo"}]})";
  EXPECT_EQ(fault(late), "");
  EXPECT_NE(fault(late, nanochat).find("system"), std::string::npos) << fault(late, nanochat);
  const std::string twice = R"({"messages":[{"role":"system","content":"S"},{"role":"system","content":"T"},)"
                            R"({"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]})";
  EXPECT_NE(fault(twice, nanochat).find("system"), std::string::npos) << fault(twice, nanochat);
}

TEST(ChatRecords, WhereEveryRecordIsBadTheRunSaysSo) {
  const TempFolder folder;
  {
    std::ofstream file(folder / "a.jsonl");
    for (int i = 0; i < 20; ++i) file << chat(R"("content":"yo","reasoning_content":"hm")") << "\n";
  }
  How how;
  how.data.source = DataSource::kJsonl, how.data.train = {(folder / "a.jsonl").string()};
  for (const auto when : {TokenizeWhen::kStart, TokenizeWhen::kLive}) {
    how.data.tokenize = when;
    const auto message = testing::error_of(ExitCode::kData, [&] {
      load_dataset(how.data, {}, chat_records_tokenizer(), how.chat, nullptr, folder.path());
    });
    EXPECT_NE(message.find("20 unknown_field"), std::string::npos) << message;
    EXPECT_NE(message.find("a.jsonl:1 (byte 0)"), std::string::npos) << message;
    EXPECT_NE(message.find("and 17 more"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tightloop
