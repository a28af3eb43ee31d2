#include "data/render/chat_jinja.h"

#include "data/byte_tokenizer.h"
#include "tokenizer/jinja.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

constexpr const char* kAsked = R"({"messages":[{"role":"user","content":"q"}]})";
constexpr const char* kTurns = "{% for m in messages %}\n<{{ m.role }}|{{ m.content }}>\n{% endfor %}\n";

std::map<std::string, std::string> jinja_of(const std::map<std::string, std::string>& templates,
                                            const std::string& system_prompt) {
  testing::ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  ChatTemplateFiles files;
  files.source = "odd.jinja", files.templates = templates;
  tokenizer.set_chat(files);
  ChatConfig config;
  config.system_prompt = system_prompt;
  return chat_jinja(config, tokenizer);
}

TEST(ChatJinja, ASystemPromptLeavesTheRestOfATemplateAsItIs) {
  for (const std::string begin : {"", "\n", "  {% if true %}\nx{% endif %}", "  x\n", "\n\n{#- c #}"}) {
    SCOPED_TRACE(begin);
    const std::string own = begin + kTurns, prompt = "It's\r\n\\brief\t";
    const std::string with =
        testing::render_jinja(jinja_of({{"default", own}}, prompt).at("default"), kAsked).text;
    const auto said = [&](const std::string& role) {
      return testing::render_jinja(own,
                                   R"({"messages":[{"role":")" + role +
                                       R"(","content":"It's\r\n\\brief\t"},{"role":"user","content":"q"}]})")
          .text;
    };
    EXPECT_EQ(with, said("system"));
    const auto jinja = jinja_of({{"default", own}}, "another").at("default");
    EXPECT_EQ(
        testing::render_jinja(jinja, R"({"messages":[{"role":"developer","content":"It's\r\n\\brief\t"},)"
                                     R"({"role":"user","content":"q"}]})")
            .text,
        said("developer"));
  }
}

TEST(ChatJinja, RolesAreThoseOfRecords) {
  const testing::ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  const std::string jinja = chat_jinja({}, tokenizer).at("default");
  const auto turn = [&](const std::string& role) {
    const std::string record = R"({"messages":[{"role":")" + role + R"(","content":"x"}]})";
    return testing::render_jinja(jinja, record).text;
  };
  EXPECT_EQ(turn("developer"), "<|im_start|>system\nx<|im_end|>\n");
  EXPECT_EQ(turn("function"), turn("tool"));
  const std::string error = testing::jinja_error(jinja, R"({"messages":[{"role":"critic","content":"x"}]})");
  EXPECT_NE(error.find("unknown role critic"), std::string::npos) << error;
}

TEST(ChatJinja, TheTemplateForToolsHasTheSystemPromptToo) {
  const auto templates = jinja_of({{"default", kTurns}, {"tool_use", "T" + std::string(kTurns)}}, "S");
  EXPECT_EQ(testing::render_jinja(templates.at("tool_use"), kAsked).text, "T<system|S>\n<user|q>\n");
  EXPECT_EQ(jinja_of({{"default", kTurns}, {"tool_use", "T"}}, "").at("tool_use"), "T");
}

}  // namespace
}  // namespace tightloop
