#include <nlohmann/json.hpp>

#include "core/files.h"
#include "tokenizer/jinja.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop {
namespace {

using nlohmann::json;

TEST(JinjaGolden, small_templates_are_rendered_as_jinja2_does) {
  const json file = json::parse(read_file(testing::source_folder() / "tests/golden/jinja.json"));
  const std::string text = read_file(testing::source_folder() / "tests/golden/jinja.json");
  // The record as it is in the file: nlohmann::json would put its keys in order.
  const std::string record = text.substr(text.find(':') + 1, text.find(",\n\"cases\"") - text.find(':') - 1);
  ASSERT_GT(file["cases"].size(), 2000u);
  for (const json& item : file["cases"]) {
    const std::string source = item["template"];
    SCOPED_TRACE(source);
    if (item.contains("error")) {
      EXPECT_THROW(testing::render_jinja(source, record), Error) << item["error"];
      continue;
    }
    try {
      const auto rendering = testing::render_jinja(source, record);
      EXPECT_EQ(rendering.text, item["text"].get<std::string>());
      EXPECT_EQ(json(rendering.generated), item.value("spans", json::array()));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(JinjaGolden, chat_templates_are_rendered_as_transformers_does) {
  const fs::path templates = testing::shared_data() / "chat_templates";
  const fs::path python = testing::source_folder() / ".deps/peers/bin/python";
  SKIP_WITHOUT(templates);
  SKIP_WITHOUT(python);
  const testing::TempFolder folder;
  const fs::path chats = folder / "chats.jsonl";
  const std::string script = (testing::source_folder() / "tests/golden/make_chats.py").string();
  const std::string command =
      "'" + python.string() + "' '" + script + "' '" + templates.string() + "' '" + chats.string() + "' 50";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::istringstream lines(read_file(chats));
  size_t count = 0, rendered = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json item = json::parse(line);
    const ChatTemplateFiles files = read_chat_template(templates / item["file"].get<std::string>());
    const std::string record = item["record"];
    SCOPED_TRACE(files.source + " " + record);
    try {
      EXPECT_EQ(testing::render_jinja(files.choose(false), record).text, item.value("text", "<an error>"));
      ++rendered;
    } catch (const Error& error) {
      EXPECT_TRUE(item.contains("error")) << error.what();
    }
  }
  EXPECT_GE(count, 50u);
  EXPECT_GT(rendered, count / 2);
}

}  // namespace
}  // namespace tightloop
