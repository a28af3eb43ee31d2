// One type, one name, all over src/: a reader who searches for it finds one thing. In one namespace two of
// them are undefined behaviour as well, that no compiler or linker has to report: the linker keeps one of
// each pair of inline functions, for both.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

/// Words and brackets of a source file, without comments, strings and preprocessor lines.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  const auto after = [&](const std::string& end, size_t from) {
    const size_t found = text.find(end, from);
    return found == std::string::npos ? text.size() : found + end.size();
  };
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  bool line_begins = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#' && line_begins) {
      for (i = after("\n", i); i >= 2 && i < text.size() && text[i - 2] == '\\';) i = after("\n", i);
    } else if (text.compare(i, 2, "//") == 0) {
      i = after("\n", i);
    } else if (text.compare(i, 2, "/*") == 0) {
      i = after("*/", i);
    } else if (text.compare(i, 2, "R\"") == 0) {
      i = after(")" + text.substr(i + 2, text.find('(', i) - i - 2) + "\"", i);
    } else if (c == '"' || (c == '\'' && (i == 0 || !is_word(text[i - 1])))) {  // not 1'000
      for (++i; i < text.size() && text[i] != c; ++i) i += text[i] == '\\';
      ++i;
    } else if (is_word(c)) {
      const size_t begin = i;
      while (i < text.size() && is_word(text[i])) ++i;
      words.push_back(text.substr(begin, i - begin));
    } else {
      const size_t count = text.compare(i, 2, "::") == 0 ? 2 : 1;
      if (!std::isspace(static_cast<unsigned char>(c))) words.push_back(text.substr(i, count));
      i += count;
    }
    line_begins = i > 0 && i <= text.size() && (text[i - 1] == '\n' || (line_begins && text[i - 1] == ' '));
  }
  return words;
}

/// The types that a file defines at namespace scope, anonymous ones too. Namespaces are left out, but for the
/// plug-in's: a kernel's arguments have the name of its operator.
std::set<std::string> types_of(const std::string& text) {
  const auto words = words_of(text);
  const std::string kOther = "{";
  const auto word = [&](size_t i) { return i < words.size() ? words[i] : std::string(); };
  std::set<std::string> types;
  std::vector<std::string> scopes;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "}" && !scopes.empty()) scopes.pop_back();
    if (words[i] == "namespace") {
      std::string name;
      size_t at = i + 1;
      while (word(at) != "{" && word(at) != ";" && word(at) != "=" && at < words.size()) name += word(at++);
      if (word(at) == "{") scopes.push_back(name), i = at;
      continue;
    }
    if (words[i] == "{") scopes.push_back(kOther);
    static const std::set<std::string> kKeys{"struct", "class", "union", "enum"};
    bool at_namespace = true;
    for (const auto& scope : scopes) at_namespace &= scope != kOther;
    if (!kKeys.contains(words[i]) || !at_namespace) continue;
    size_t at = i + 1;
    if (words[i] == "enum" && kKeys.contains(word(at))) ++at;
    while (word(at) == "alignas" || word(at) == "[") {
      const std::string close = word(at) == "[" ? "]" : ")";
      while (word(at++) != close && at < words.size()) {
      }
      if (word(at) == "]") ++at;
    }
    const std::string name = word(at++);
    if (word(at) == "final") ++at;
    if (word(at) == ":")
      while (word(at) != "{" && word(at) != ";" && at < words.size()) ++at;
    if (word(at) != "{") continue;  // declared, or a template's parameter, or a specialization
    const bool plugin =
        std::ranges::any_of(scopes, [](const auto& scope) { return scope.ends_with("cuda"); });
    types.insert((plugin ? "cuda::" : "") + name);
  }
  return types;
}

TEST(House, TypesOfAFileAreFound) {
  EXPECT_EQ(types_of("namespace a {\nstruct One { struct Inner {}; };\n// struct No {};\nclass Later;\n"
                     "namespace b::cuda { enum class Two : int { kX }; }\nnamespace {\nclass Own {}; }\n"
                     "template <class T> struct Three final : One { const char* s = \"struct No {\"; };\n"
                     "template <> struct Three<int> {};\nvoid f(struct tm* x) { struct Local {}; }\n}\n"
                     "#define X struct No {\nstruct [[nodiscard]] alignas(16) Four {};"),
            (std::set<std::string>{"One", "cuda::Two", "Own", "Three", "Four"}));
}

TEST(House, NoTwoTypesHaveOneName) {
  std::map<std::string, std::set<fs::path>> files;
  for (const auto& entry : fs::recursive_directory_iterator(testing::source_folder() / "src")) {
    const auto ending = entry.path().extension();
    if (ending != ".h" && ending != ".cpp" && ending != ".cu" && ending != ".cuh") continue;
    for (const auto& type : types_of(read_file(entry.path()))) files[type].insert(entry.path());
  }
  ASSERT_GT(files.size(), 100u);
  for (const auto& [type, where] : files) {
    std::string list;
    for (const auto& file : where) list += "\n  " + file.string();
    EXPECT_EQ(where.size(), 1u) << type << " is defined in" << list;
  }
}

}  // namespace
}  // namespace tightloop
