// Every `tightloop ...` command in the docs, in the comments of recipes and in the journeys has a verb that
// exists, options that this verb has, settings with values that they take, and recipes that are there.
#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;

const fs::path kSource = TIGHTLOOP_SOURCE_DIR;

struct DocumentedCommand {
  std::string where;
  std::vector<std::string> words;  // after `tightloop`
  std::string line() const {
    std::string text = where + ": tightloop";
    for (const auto& word : words) text += " " + word;
    return text;
  }
};

std::string in_quotes(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

/// The words of a command up to a pipe, a redirection, a comment, or the remark behind two spaces.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool open = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (quote) {
      if (c == quote)
        quote = 0;
      else
        word += c;
      continue;
    }
    if (c == '\'' || c == '"') {
      quote = c, open = true;
    } else if (c == ' ') {
      if (open || !word.empty()) words.push_back(word);
      word.clear(), open = false;
      if (i + 1 < text.size() && text[i + 1] == ' ') break;
    } else if (std::string_view("|<>;#`&)").find(c) != std::string_view::npos) {
      break;
    } else {
      word += c;
    }
  }
  return words;
}

void add_command(std::vector<DocumentedCommand>& found, const std::string& where, const std::string& text) {
  // A name behind a letter, a quote or a dash is no command: `libtightloop`, 'tightloop config' in a message.
  static const std::regex kCommand(R"((?:^|[ (|`])(?:build/)?tightloop ([^`]*))");
  for (std::sregex_iterator match(text.begin(), text.end(), kCommand), end; match != end; ++match)
    if (auto words = words_of((*match)[1]); !words.empty()) found.push_back({where, words});
}

/// Of a page: lines in fences, and code within a line; of other files: the lines that `picks`.
std::vector<DocumentedCommand> commands_of(const fs::path& file) {
  std::vector<DocumentedCommand> found;
  std::istringstream lines(read_file(file));
  const bool page = file.extension() == ".md", journey = file.extension() == ".sh";
  bool fenced = false;
  int number = 0;
  for (std::string line, more; std::getline(lines, line); ++number) {
    const std::string where = file.filename().string() + ":" + std::to_string(number + 1);
    while (line.ends_with("\\") && std::getline(lines, more)) {
      const size_t start = more.find_first_not_of(" #");
      line = line.substr(0, line.size() - 1) + (start == std::string::npos ? "" : more.substr(start)),
      ++number;
    }
    if (page && line.starts_with("```")) {
      fenced = !fenced;
    } else if (page && !fenced) {
      static const std::regex kCode("`((?:build/)?tightloop [^`]+)`");
      for (std::sregex_iterator code(line.begin(), line.end(), kCode), end; code != end; ++code)
        add_command(found, where, (*code)[1]);
    } else if (page) {
      static const std::regex kPrompt(R"(^(?:\$ |.*\| )?(?:build/)?tightloop )");
      if (std::regex_search(line, kPrompt)) add_command(found, where, line);
    } else if (journey) {
      static const std::regex kRun("^ *(?:ok|expect 0) \"(.*)\"$");
      if (std::smatch match; std::regex_match(line, match, kRun)) add_command(found, where, match[1]);
    } else if (line.starts_with("#   ")) {
      add_command(found, where, line.substr(4));
    }
  }
  return found;
}

class Documented : public ::testing::Test {
 protected:
  /// What `tightloop VERB --help` prints, once for each.
  const std::string& help(const std::string& verb) {
    auto [entry, is_new] = helps_.try_emplace(verb);
    if (is_new) {
      const auto outcome = run(folder_.path(), "tightloop " + verb + " --help");
      if (outcome.exit_code == 0) entry->second = outcome.output;
    }
    return entry->second;
  }

  void check(const DocumentedCommand& command) {
    const auto& words = command.words;
    if (words.front() == "VERB" || words.front().starts_with("-")) return;
    ASSERT_NE(help(words.front()), "") << command.line() << ": no such verb";
    std::string verb = words.front();
    if (help(verb).find("Subcommands:") != std::string::npos && words.size() > 1) {
      verb += " " + words[1];
      ASSERT_NE(help(verb), "") << command.line() << ": no such verb";
    }
    for (size_t i = 1; i < words.size(); ++i) check_word(command, verb, i);
  }

  void check_word(const DocumentedCommand& command, const std::string& verb, size_t i) {
    const std::string& word = command.words[i];
    if (word.starts_with("configs/") && word.find_first_of("*{N") == std::string::npos) {
      EXPECT_TRUE(fs::exists(kSource / word)) << command.line() << ": no such recipe";
    }
    if (!word.starts_with("--") || word == "--section.key") return;
    const std::string name = word.substr(0, word.find('='));
    const std::regex listed(name + R"((?![-\w]))");
    if (std::regex_search(help(verb), listed)) return;
    settings_.push_back({command.line(), word});
    if (word.size() == name.size() && i + 1 < command.words.size()) {
      const std::string& value = command.words[i + 1];
      // A placeholder is as good as any value.
      if (value == "VALUE" || value == "N" || value.starts_with("$") || value.starts_with("..."))
        settings_.pop_back();
      else
        settings_.back().second += "=" + value;
    }
  }

  TempFolder folder_;
  std::map<std::string, std::string> helps_;
  std::vector<std::pair<std::string, std::string>> settings_;
};

TEST_F(Documented, CommandsHaveVerbsOptionsSettingsAndRecipesThatExist) {
  std::vector<DocumentedCommand> commands;
  const auto add = [&](const fs::path& file) {
    std::ranges::move(commands_of(file), std::back_inserter(commands));
  };
  add(kSource / "README.md"), add(kSource / "CONTRIBUTING.md");
  for (const char* folder : {"docs", "configs", "tools/journeys"})
    for (const auto& entry : fs::directory_iterator(kSource / folder))
      if (entry.is_regular_file() && entry.path().filename() != "log.md" && entry.path().extension() != ".py")
        add(entry.path());
  ASSERT_GT(commands.size(), 60u);
  for (const auto& command : commands) check(command);

  // All settings at once; one by one only to say which of them is not taken.
  ASSERT_GT(settings_.size(), 30u);
  std::map<std::string, std::string> lines;
  for (const auto& [line, setting] : settings_) lines.try_emplace(in_quotes(setting), line);
  std::string all = "tightloop config";
  for (const auto& [setting, line] : lines) all += " " + setting;
  if (run(folder_.path(), all).exit_code == 0) return;
  for (const auto& [setting, line] : lines) {
    const auto outcome = run(folder_.path(), "tightloop config " + setting);
    EXPECT_EQ(outcome.exit_code, 0) << line << "\n" << outcome.output;
  }
}

}  // namespace
}  // namespace tightloop
