#include "serve/api/answer_parts.h"

#include "fuzz.h"
#include "support.h"

namespace tightloop {
namespace {

using serve::AnswerDelta;
using serve::AnswerParts;

const std::set<std::string> kTools{"weather", "time"};
const std::string kCall =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";

/// "thinking|content|name(arguments)...", from pieces of some size.
std::string parts_of(const std::string& text, size_t size, bool thinks = false,
                     const std::set<std::string>& tools = {}) {
  AnswerParts parts(thinks, tools);
  AnswerDelta all;
  const auto join = [&](AnswerDelta delta) {
    all.thinking += delta.thinking, all.content += delta.content;
    all.calls.insert(all.calls.end(), delta.calls.begin(), delta.calls.end());
  };
  for (size_t at = 0; at < text.size(); at += size) join(parts.add(text.substr(at, size)));
  join(parts.finish());
  EXPECT_EQ(parts.has_calls(), !all.calls.empty());
  std::string shown = all.thinking + "|" + all.content + "|";
  for (const auto& call : all.calls) shown += call.name + "(" + call.arguments + ")";
  return shown;
}

struct PartsCase {
  std::string text, expected;
  bool thinks = false;
  std::set<std::string> tools{};
};

const std::vector<PartsCase> kCases{
    {"Hello, world.\n", "|Hello, world.\n|"},
    {" \n", "| \n|"},
    {"", "||"},
    {"<think>\nSo.\n</think>\n\nYes.", "So.|Yes.|"},
    {"\n<think>a</think>b", "a|b|"},
    {"<think>never closed", "never closed||"},
    {"<think></think>b", "|b|"},
    {"<thin", "|<thin|"},
    {"a <think>b</think>", "|a <think>b</think>|"},
    {"So.\n</think>\n\nYes.", "So.|Yes.|", true},
    {"only thinking </thin", "only thinking </thin||", true},
    {kCall, "|" + kCall + "|"},
    {kCall, "||weather({\"city\":\"Rome\"})", false, kTools},
    {"Let me look.\n" + kCall + "\n" + kCall + "\n",
     "|Let me look.|weather({\"city\":\"Rome\"})weather({\"city\":\"Rome\"})", false, kTools},
    {"<think>\nhm\n</think>\n\n" + kCall, "hm||weather({\"city\":\"Rome\"})", false, kTools},
    {"a\n<tool_call>no json</tool_call> b", "|a\n<tool_call>no json</tool_call> b|", false, kTools},
    {"a <tool_call>{\"name\": \"wea", "|a <tool_call>{\"name\": \"wea|", false, kTools},
    {"1 < 2 <tool", "|1 < 2 <tool|", false, kTools},
    {R"({"name": "weather", "parameters": {"city": "Rome"}})", R"(||weather({"city":"Rome"}))", false,
     kTools},
    {R"({"name": "weather", "parameters": {"z": 1, "a": 2}})", R"(||weather({"z":1,"a":2}))", false, kTools},
    {R"({"name": "other", "parameters": {}})", R"(|{"name": "other", "parameters": {}}|)", false, kTools},
    {R"({"city": "Rome"})", R"(|{"city": "Rome"}|)", false, kTools},
    {R"({"name": "weather", "parameters": {}})", R"(|{"name": "weather", "parameters": {}}|)"},
    {R"(<|python_tag|>{"name": "time", "parameters": {}})", "||time({})", false, kTools},
    {R"([TOOL_CALLS] [{"name": "time", "arguments": {}}, {"name": "weather", "arguments": {"city": "Rome"}}])",
     R"(||time({})weather({"city":"Rome"}))", false, kTools},
    {"[TOOL] is a word", "|[TOOL] is a word|", false, kTools},
};

TEST(AnswerParts, AreFoundHoweverTheTextIsCut) {
  for (const auto& one : kCases)
    for (const size_t size : {1, 2, 3, 5, 8, 13, 1000})
      EXPECT_EQ(parts_of(one.text, size, one.thinks, one.tools), one.expected) << one.text << " by " << size;
}

TEST(AnswerParts, TextIsGivenAtOnceWhereItCanBeNothingElse) {
  AnswerParts plain(false, {}), tools(false, kTools);
  EXPECT_EQ(plain.add("Hel").content, "Hel");
  EXPECT_EQ(plain.add("lo <too").content, "lo <too");
  EXPECT_EQ(tools.add("Hello").content, "Hello");
  EXPECT_EQ(tools.add(" <tool_").content, "");
  EXPECT_EQ(tools.add("s>").content, " <tool_s>");
}

// Nothing is lost and nothing is added but marks, white space around them, and what calls are made of.
TEST(AnswerParts, FuzzedTextsGiveTheSameWholeAndInPieces) {
  std::vector<std::string> seeds;
  for (const auto& one : kCases)
    if (!one.text.empty()) seeds.push_back(one.text);
  const std::vector<std::string> words{"<think>",      "</think>", "<tool_call>", "</tool_call>",
                                       "[TOOL_CALLS]", "{",        "\n"};
  testing::fuzz(seeds, testing::fuzz_runs(20000), words, [&](std::string& bytes, Random& random) {
    const bool thinks = random.below(2) == 1;
    const auto tools = random.below(2) ? kTools : std::set<std::string>();
    const auto whole = parts_of(bytes, bytes.size() + 1, thinks, tools);
    ASSERT_EQ(whole, parts_of(bytes, 1 + random.below(7), thinks, tools)) << bytes;
    if (tools.empty() && !thinks && bytes.find("<think>") == bytes.npos) {
      ASSERT_EQ(whole, "|" + bytes + "|");
    }
  });
}

}  // namespace
}  // namespace tightloop
