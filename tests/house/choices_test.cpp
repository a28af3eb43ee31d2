// A choice that users make is an enum with one table (core/choice.h). Code that compares its names as text
// would miss a misspelled one and a value that was added.
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

/// The names of all choices, as the page of settings lists them.
std::set<std::string> names_of_choices() {
  static const std::regex kTakes(R"(\| one of ([^|]*) \|)");
  std::set<std::string> names;
  std::istringstream page(read_file(testing::source_folder() / "docs" / "configuration.md"));
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, kTakes)) continue;
    std::istringstream words(match[1]);
    for (std::string name; std::getline(words >> std::ws, name, ',');) names.insert(name);
  }
  names.erase("");
  return names;
}

std::vector<std::string> compared_names(const std::string& source, const std::set<std::string>& names) {
  std::string text;  // white space as one space: a comparison may go over a line's end
  for (const char c : source)
    if (!std::isspace(static_cast<unsigned char>(c)))
      text += c;
    else if (text.empty() || text.back() != ' ')
      text += ' ';
  std::vector<std::string> found;
  const auto add = [&](size_t begin, size_t end) {
    if (const auto name = text.substr(begin, end - begin); names.contains(name)) found.push_back(name);
  };
  for (size_t at = 0; (at = text.find("= \"", at)) != std::string::npos; ++at)
    if (at > 0 && (text[at - 1] == '=' || text[at - 1] == '!')) add(at + 3, text.find('"', at + 3));
  for (const char* after : {"\" ==", "\" !="})
    for (size_t at = 1; (at = text.find(after, at)) != std::string::npos; ++at)
      add(text.rfind('"', at - 1) + 1, at);
  return found;
}

TEST(House, ComparisonsOfNamesAreFound) {
  EXPECT_EQ(
      compared_names("if (a == \"pad\" || \"pack\" != b || c == \"other\" || d ==\n \"pad\") e(\"pad\");",
                     {"pad", "pack"}),
      (std::vector<std::string>{"pad", "pad", "pack"}));
}

TEST(House, ChoicesAreNotComparedAsText) {
  // What takes other texts too, such as a number or cuda:1, words of other people's files, and words that
  // mean something else there.
  const std::map<std::string, std::set<std::string>> allowed{
      {"core/device.cpp", {"auto"}},
      {"train/engine/precision.cpp", {"auto"}},
      {"model/model_config.cpp", {"auto", "none", "all"}},
      {"cli/verbs/checkpoint.cpp", {"last"}},
      {"cli/verbs/train.cpp", {"auto"}},
      {"tokenizer/jinja/call_function.cpp", {"last"}},
      {"model/families/llama/llama_huggingface.cpp", {"llama3"}},
      {"model/families/llama/llama_gguf.cpp", {"none"}},  // words of the GGUF format
      {"tokenizer/gguf_tokenizer.cpp", {"gpt2", "llama"}},
      {"tokenizer/gguf_sentencepiece.cpp", {"llama"}},
      {"data/render/json_messages.cpp", {"text"}},
      {"data/render/render.cpp", {"auto", "none"}},
      {"serve/api/generation_request.cpp", {"none"}},
      {"serve/api/messages.cpp", {"assistant", "text"}},
  };
  const auto names = names_of_choices();
  ASSERT_GT(names.size(), 60u);
  std::set<std::string> used;
  const fs::path source = testing::source_folder() / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    if (!entry.is_regular_file()) continue;
    const std::string file = fs::relative(entry.path(), source).string();
    for (const std::string& name : compared_names(read_file(entry.path()), names)) {
      const auto may = allowed.find(file);
      EXPECT_TRUE(may != allowed.end() && may->second.contains(name))
          << file << " compares \"" << name << '"';
      used.insert(file);
    }
  }
  for (const auto& [file, words] : allowed) EXPECT_TRUE(used.contains(file)) << file << " needs no exception";
}

}  // namespace
}  // namespace tightloop
