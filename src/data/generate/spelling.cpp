#include "data/generate/spelling.h"

#include <array>
#include <string>

#include "core/error.h"
#include "data/generate/generated_records.h"
#include "data/read/json_text.h"

namespace tightloop {

namespace {

std::string make_word(Random& random) {
  static constexpr std::array<const char*, 20> kStarts{"b",  "c",  "d",  "f",  "g",  "h", "l",
                                                       "m",  "n",  "p",  "r",  "s",  "t", "v",
                                                       "br", "ch", "st", "tr", "pl", "sh"};
  static constexpr std::array<const char*, 10> kVowels{"a", "e", "i", "o", "u", "ea", "oo", "ou", "ai", "ee"};
  static constexpr std::array<const char*, 10> kEnds{"", "", "n", "r", "l", "s", "t", "m", "ck", "rr"};
  std::string word;
  for (uint64_t i = 1 + random.below(3); i > 0; --i) {
    word += kStarts[random.below(kStarts.size())];
    word += kVowels[random.below(kVowels.size())];
    word += kEnds[random.below(kEnds.size())];
  }
  return word;
}

struct Talk {
  std::string question, answer;
};

Talk spell(Random& random) {
  const std::string word = make_word(random);
  std::string letters;
  for (const char letter : word) letters += letters.empty() ? std::string{letter} : std::string{',', letter};
  return {"Spell the word: " + word, word + ":" + letters};
}

Talk count(Random& random) {
  const std::string word = make_word(random);
  // Mostly letters that are there, or the answer would nearly always be 0.
  const char wanted =
      random.below(5) ? word[random.below(word.size())] : static_cast<char>('a' + random.below(26));
  std::string steps = fmt::format("The word '{}' letter by letter:\n", word);
  int found = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    found += word[i] == wanted;
    steps += fmt::format("{}:{}{}\n", i + 1, word[i], word[i] == wanted ? fmt::format(" hit {}", found) : "");
  }
  return {fmt::format("How many {} are in the word {}?", wanted, word),
          fmt::format("{}So the answer is {}.", steps, found)};
}

GeneratedRecord conversation(Random& random) {
  const Talk talk = random.below(2) ? spell(random) : count(random);
  std::string json = R"({"messages":[{"role":"user","content":)";
  append_json_string(talk.question, json);
  json += R"(},{"role":"assistant","content":)";
  append_json_string(talk.answer, json);
  json += "}]}";
  return {talk.question, json};
}

}  // namespace

std::unique_ptr<RecordReader> make_spelling_reader(const TasksConfig& config, bool held_out) {
  return make_generated_reader("spelling", config, held_out, conversation);
}

}  // namespace tightloop
