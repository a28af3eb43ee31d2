// What is learned of conversations that templates write in unusual ways: in macros, by numbers, outside of
// loops.
#include <set>

#include "data/byte_tokenizer.h"
#include "data/render/render.h"
#include "support.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

constexpr const char* kTalk =
    R"({"messages":[{"role":"user","content":"assistant 4"},{"role":"assistant","content":"one"},)"
    R"({"role":"user","content":"b"},{"role":"assistant","content":"4"}]})";
constexpr const char* kAsks = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr const char* kTurn = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}";

// Each token that is learned; of a bad record: why.
std::string learned_by(const std::string& jinja, const ChatConfig& config = {},
                       const std::string& record = kTalk) {
  testing::ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  ChatTemplateFiles files;
  files.source = "odd.jinja";
  files.templates["default"] = jinja;
  tokenizer.set_chat(files);
  std::string bytes = record;
  bytes.reserve(bytes.size() + kRecordPadding);
  Record whole;
  whole.bytes = bytes;
  Rendered out;
  make_json_renderer({}, tokenizer, std::make_shared<ChatTemplate>(config, tokenizer))->render(whole, out);
  if (out.bad != BadKind::kNone) return out.why;
  std::vector<int32_t> learned;
  for (size_t i = 0; i < out.ids.size(); ++i)
    if (out.mask[i]) learned.push_back(out.ids[i]);
  return tokenizer.decode(learned);
}

std::string said(const std::string& jinja, const ChatConfig& config = {}) {
  return learned_by(jinja + kAsks, config);
}

const std::string kGenerates =
    "<|im_start|>{{ m.role }}\n{{ '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content "
    "}}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}";

TEST(TemplateMasks, GenerationInsideOfAMacroIsFoundWhereItStands) {
  const std::string macro = "{% macro say(m) %}" + kGenerates + "{% endmacro %}";
  EXPECT_EQ(said(macro + "{% for m in messages %}{{ say(m) }}{% endfor %}"), "one<|im_end|>4<|im_end|>");
  EXPECT_EQ(said(macro + "{% for m in messages %}{{ say(m) | trim + '\n' }}{% endfor %}"),
            "one<|im_end|>4<|im_end|>");
  EXPECT_EQ(said(macro + "{% for m in messages %}{% set x = say(m) %}=={{ x }}{% endfor %}"),
            "one<|im_end|>4<|im_end|>");
  EXPECT_NE(
      said(macro + "{% for m in messages %}{{ say(m) | replace('o', '0') }}{% endfor %}").find("generation"),
      std::string::npos);
}

TEST(TemplateMasks, TwoBlocksOfOneTurnAreBothLearned) {
  const std::string macro =
      "{% macro say(m) %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content "
      "}}"
      "{% endgeneration %} and {% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}"
      "{{ m.content }}<|im_end|>{% endif %}{% endmacro %}";
  EXPECT_EQ(said(macro + "{% for m in messages %}{{ say(m) }}{% endfor %}"), "oneone<|im_end|>44<|im_end|>");
}

TEST(TemplateMasks, MessagesByNumberAreToldApart) {
  const std::string by_number =
      "{% for i in range(messages|length) %}{% set m = messages[i] %}" + std::string(kTurn) + "{% endfor %}";
  EXPECT_EQ(said(by_number), "one<|im_end|>4<|im_end|>");
  EXPECT_EQ(
      said("{% for i in range(messages|length) %}{% set m = messages[i] %}" + kGenerates + "{% endfor %}"),
      "one<|im_end|>4<|im_end|>");
  ChatConfig last;
  last.learn = ChatLearn::kLast;
  EXPECT_EQ(said(by_number, last), "4<|im_end|>");
}

TEST(TemplateMasks, ATurnOutsideOfTheLoopIsLearnedToo) {
  const std::string turn = kTurn;
  EXPECT_EQ(said("{% for m in messages[:-1] %}" + turn + "{% endfor %}{% set m = messages[-1] %}" + turn),
            "one<|im_end|>4<|im_end|>");
  EXPECT_EQ(said("{% set all %}{% for m in messages %}" + turn + "{% endfor %}{% endset %}{{ all }}"),
            "one<|im_end|>4<|im_end|>");
}

// It opens each text with how many messages there are: no text begins with another.
TEST(TemplateMasks, WhatCannotBeToldApartIsABadRecord) {
  EXPECT_NE(said("{{ messages|length }}{% for i in range(messages|length) %}{% set m = messages[i] %}" +
                 std::string(kTurn) + "{% endfor %}")
                .find("told apart"),
            std::string::npos);
}

TEST(TemplateMasks, ATemplateThatWantsASystemPromptIsAskedWithOne) {
  const std::string jinja =
      "{% if messages[0].role != 'system' %}{{ raise_exception('a system prompt, please') }}{% endif %}"
      "{% for m in messages %}" +
      std::string(kTurn) + "{% endfor %}" + kAsks;
  EXPECT_EQ(learned_by(jinja, {},
                       R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"q"},)"
                       R"({"role":"assistant","content":"a"}]})"),
            "a<|im_end|>");
}

TEST(TemplateMasks, ATemplateThatWantsToolsIsAskedWithSome) {
  const std::string jinja =
      "{% for tool in tools %}<|im_start|>{{ tool.function.name }}<|im_end|>{% endfor %}"
      "{% for m in messages %}" +
      std::string(kTurn) + "{% endfor %}" + kAsks;
  EXPECT_EQ(learned_by(jinja, {},
                       R"({"tools":[{"type":"function","function":{"name":"f"}}],"messages":)"
                       R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"),
            "a<|im_end|>");
}

// It says "type" itself, which is no sign of a list that is written as it is.
TEST(TemplateMasks, ATemplateThatReadsListsGetsThem) {
  const std::string reads =
      "type: {% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for part in m.content %}({{ part.text }}){% endfor %}{% endif %}<|im_end|>{% endfor %}";
  const char* const record =
      R"({"messages":[{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})";
  EXPECT_NE(learned_by(reads, {}, record).find("(a)(b)"), std::string::npos);
}

TEST(TemplateMasks, OthersGetAllPartsOfAListAsOneText) {
  const std::string reads_texts =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if m.content is string else '' "
      "}}<|im_end|>"
      "{% endfor %}" +
      std::string(kAsks);
  EXPECT_EQ(
      learned_by(reads_texts, {},
                 R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":)"
                 R"([{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"c"}]}]})"),
      "abc<|im_end|>");
}

TEST(TemplateMasks, VariablesThatATemplateDoesNotReadAreNamed) {
  const auto with = [](const std::string& variables) {
    return learned_by(
        "{% for m in messages %}{{ '!' if loud }}" + std::string(kTurn) + "{% endfor %}" + kAsks, {},
        R"({"chat_template_kwargs":)" + variables +
            R"(,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})");
  };
  EXPECT_EQ(with(R"({"loud":true})"), "a<|im_end|>");
  EXPECT_NE(with(R"({"lowd":true})").find("'lowd'"), std::string::npos);
  EXPECT_NE(with(R"({"messages":[]})").find("'messages'"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
