#include "tokenizer/jinja/template_files.h"

#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using testing::write_file;

TEST(ChatTemplateFiles, a_file_may_be_a_template_or_json) {
  const TempFolder folder;
  write_file(folder / "a.jinja", "{{ x }}");
  EXPECT_EQ(read_chat_template(folder / "a.jinja").choose(true), "{{ x }}");
  write_file(folder / "chat_template.json", R"({"chat_template":"{{ y }}"})");
  EXPECT_EQ(read_chat_template(folder / "chat_template.json").choose(false), "{{ y }}");
  write_file(folder / "b.json", R"({"x":1})");
  EXPECT_NE(error_of(ExitCode::kData, [&] { read_chat_template(folder / "b.json"); })
                .find("has no 'chat_template'"),
            std::string::npos);
  write_file(folder / "c.json", R"({"chat_template":5})");
  error_of(ExitCode::kData, [&] { read_chat_template(folder / "c.json"); });
  error_of(ExitCode::kData, [&] { read_chat_template(folder / "none.jinja"); });
}

TEST(ChatTemplateFiles, of_several_the_one_for_tools_is_taken_where_there_are_tools) {
  const TempFolder folder;
  write_file(folder / "tokenizer_config.json",
             R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]})");
  const auto files = read_chat_template(folder.path());
  EXPECT_EQ(files.choose(false), "D");
  EXPECT_EQ(files.choose(true), "T");
  write_file(folder / "tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"R"}]})");
  EXPECT_NE(
      error_of(ExitCode::kData, [&] { read_chat_template(folder.path()).choose(false); }).find("'default'"),
      std::string::npos);
}

TEST(ChatTemplateFiles, a_folder_gives_special_tokens_and_the_template_of_its_own_file_first) {
  const TempFolder folder;
  write_file(
      folder / "tokenizer_config.json",
      R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,"chat_template":"old"})");
  write_file(folder / "chat_template.jinja",
             "{{ bos_token }}{{ x }}{{ eos_token }}{{ pad_token is defined }}");
  const auto files = read_chat_template(folder.path());
  JinjaVariables variables;
  files.add_tokens(variables);
  variables.add_record(R"({"x":1})", "the record");
  EXPECT_EQ(JinjaTemplate(files.choose(false)).render(variables).text, "<s>1</s>False");
}

TEST(ChatTemplateFiles, tokens_of_older_folders_and_of_models_are_found) {
  const TempFolder folder;
  write_file(folder / "chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ picture }}");
  const auto rendered = [&](const std::string& config) {
    write_file(folder / "tokenizer_config.json", config);
    const auto files = read_chat_template(folder.path());
    JinjaVariables variables;
    files.add_tokens(variables);
    return files.token("bos_token") + "|" + JinjaTemplate(files.choose(false)).render(variables).text;
  };
  write_file(folder / "special_tokens_map.json",
             R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"additional_special_tokens":["<x>"]})");
  EXPECT_EQ(rendered(R"({"bos_token":"<old>"})"), "<s>|<s></s>");
  // transformers reads the other file no longer where this field is there.
  EXPECT_EQ(rendered(R"({"bos_token":"<new>","added_tokens_decoder":{}})"), "<new>|<new>");
  EXPECT_EQ(rendered(R"({"added_tokens_decoder":{},"extra_special_tokens":{"picture":"<img>"}})"), "|<img>");
}

TEST(ChatTemplateFiles, a_folder_without_a_template_is_a_data_error) {
  const TempFolder folder;
  EXPECT_NE(
      error_of(ExitCode::kData, [&] { read_chat_template(folder.path()); }).find("has no chat template"),
      std::string::npos);
}

}  // namespace
}  // namespace tightloop
