// Pages of the documentation: links lead somewhere, and messages are quoted as the program prints them.
#include <cctype>
#include <regex>
#include <set>
#include <sstream>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

std::vector<fs::path> pages() {
  const fs::path root = testing::source_folder();
  std::vector<fs::path> found{root / "README.md", root / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

/// What GitHub makes of a heading: letters, digits, - and _ stay, spaces become -.
std::set<std::string> anchors_of(const fs::path& page) {
  std::set<std::string> anchors;
  std::istringstream lines(read_file(page));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) continue;
    std::string anchor;
    for (const char c : line.substr(line.find_first_not_of("# "))) {
      if (c == ' ')
        anchor += '-';
      else if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

TEST(Pages, LinksLeadSomewhere) {
  static const std::regex kLink(R"(\]\(([^)#\s]*)(?:#([^)\s]*))?\))");
  size_t links = 0;
  for (const auto& page : pages()) {
    const std::string text = read_file(page);
    for (std::sregex_iterator link(text.begin(), text.end(), kLink), end; link != end; ++link) {
      const std::string target = (*link)[1], anchor = (*link)[2];
      if (target.starts_with("http")) continue;
      const fs::path file = target.empty() ? page : page.parent_path() / target;
      ++links;
      ASSERT_TRUE(fs::exists(file)) << page << " links to " << target;
      if (!anchor.empty()) {
        EXPECT_TRUE(anchors_of(file).contains(anchor)) << page << " links to " << target << "#" << anchor;
      }
    }
  }
  EXPECT_GT(links, 50u);
}

/// Letters alone: spaces, quotes and line breaks of the source do not matter.
std::string letters_of(const std::string& text) {
  std::string letters;
  for (const char c : text)
    if (std::isalpha(static_cast<unsigned char>(c))) letters += c;
  return letters;
}

TEST(Pages, QuotedMessagesAreInTheSource) {
  const fs::path root = testing::source_folder();
  static const std::regex kJoin("\"\\s*\n\\s*\"");
  std::string sources;
  for (const auto& entry : fs::recursive_directory_iterator(root / "src"))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h")
      sources += std::regex_replace(read_file(entry.path()), kJoin, "") + "\n";
  const std::string source_letters = letters_of(sources);

  std::istringstream lines(read_file(root / "docs/troubleshooting.md"));
  size_t checked = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    std::string message = line.substr(3, line.find('`', 3) - 3);
    // The longest part between names, numbers and colons must be there.
    static const std::regex kVariable(
        R"('[^']*'|:|\.\.\.|[0-9][0-9.,]*|\b[A-Z]{1,7}\b|\[[^\]]*\]|\([^)]*\)|--[a-z.]+)");
    std::string longest, part;
    std::istringstream parts(std::regex_replace(message, kVariable, "\n"));
    while (std::getline(parts, part))
      if (letters_of(part).size() > longest.size()) longest = letters_of(part);
    if (longest.size() < 8) continue;
    EXPECT_NE(source_letters.find(longest), std::string::npos) << message << "\n  looked for: " << longest;
    ++checked;
  }
  EXPECT_GT(checked, 40u);
}

}  // namespace
}  // namespace tightloop
