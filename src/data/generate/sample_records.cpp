#include "data/generate/sample_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "data/read/json_text.h"

namespace tightloop {

namespace {

template <size_t N>
std::string word_of(Random& random, const std::array<const char*, N>& words) {
  return words[random.below(N)];
}

constexpr std::array<const char*, 16> kPeople{"Ada",    "Ben",   "Clara", "David", "Emil",  "Frida",
                                              "Gustav", "Hanna", "Ivan",  "Jule",  "Karim", "Lena",
                                              "Mateo",  "Nora",  "Oskar", "Paula"};
constexpr std::array<const char*, 16> kThings{"apples", "books",  "stones",  "coins",   "lamps",  "boats",
                                              "shells", "chairs", "bottles", "letters", "stamps", "pears",
                                              "ropes",  "bricks", "maps",    "bells"};
constexpr std::array<const char*, 12> kQualities{"old",   "small", "quiet", "green", "heavy",  "bright",
                                                 "early", "warm",  "round", "broad", "simple", "distant"};
constexpr std::array<const char*, 16> kPlaces{"river",  "house",   "teacher", "forest", "engine",   "village",
                                              "garden", "bridge",  "storm",   "letter", "mountain", "market",
                                              "child",  "harbour", "clock",   "road"};
constexpr std::array<const char*, 12> kDoings{"finds",  "follows",  "describes", "remembers",
                                              "leaves", "repairs",  "crosses",   "watches",
                                              "visits", "measures", "paints",    "hides"};
constexpr std::array<const char*, 8> kChinese{"河流", "房子", "老师", "森林", "村庄", "花园", "桥", "市场"};

std::string made_up_sentence(Random& random) {
  std::string text =
      fmt::format("The {} {} {} the {} {}", word_of(random, kQualities), word_of(random, kPlaces),
                  word_of(random, kDoings), word_of(random, kQualities), word_of(random, kPlaces));
  if (random.below(3) == 0) text += fmt::format(" near the {}", word_of(random, kPlaces));
  if (random.below(4) == 0)
    text += fmt::format(", and {} {} it", word_of(random, kPeople), word_of(random, kDoings));
  return text + ".";
}

std::string made_up_text(Random& random, uint64_t count) {
  std::string text;
  for (uint64_t i = 0; i < count; ++i) (text += i > 0 ? " " : "") += made_up_sentence(random);
  return text;
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

struct Turn {
  std::string role, content, more{};  // more: further fields, as JSON
};

std::string turns_json(const std::vector<Turn>& turns) {
  std::vector<std::string> parts;
  for (const Turn& turn : turns)
    parts.push_back(fmt::format(R"({{"content": {}, "role": {}{}}})", json_string(turn.content),
                                json_string(turn.role), turn.more));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

Turn made_up_question(Random& random) {
  switch (random.below(3)) {
    case 0:
      return {"user",
              fmt::format("Write {} sentences about a {}.", 2 + random.below(3), word_of(random, kPlaces))};
    case 1:
      return {"user", "What happens here? " + made_up_sentence(random)};
    default:
      return {"user",
              fmt::format("Tell me about the {} {}.", word_of(random, kQualities), word_of(random, kPlaces))};
  }
}

std::vector<Turn> made_up_talk(Random& random) {
  std::vector<Turn> turns;
  if (random.below(4) == 0) turns.push_back({"system", "You answer briefly. " + made_up_sentence(random)});
  for (uint64_t i = 1 + random.below(3); i > 0; --i) {
    turns.push_back(made_up_question(random));
    turns.push_back({"assistant", made_up_text(random, 1 + random.below(4))});
  }
  return turns;
}

}  // namespace

std::string SampleRecords::paragraph(Random& random) { return made_up_text(random, 3 + random.below(12)); }

std::string SampleRecords::text(Random& random, const std::string& field) {
  return fmt::format("{{{}: {}}}", json_string(field), json_string(paragraph(random)));
}

std::string SampleRecords::chat(Random& random) {
  return fmt::format(R"({{"messages": {}, "source": "sample"}})", turns_json(made_up_talk(random)));
}

std::string SampleRecords::minimind_chat(Random& random) {
  std::vector<Turn> turns = made_up_talk(random);
  if (random.below(2) == 0) {
    const std::string noun = word_of(random, kChinese);
    turns = {{"user", fmt::format("请介绍一下{}。", noun)},
             {"assistant", fmt::format("{}在{}的旁边。", noun, word_of(random, kChinese))}};
  }
  return fmt::format(R"({{"conversations": {}}})", turns_json(turns));
}

std::string SampleRecords::minimind_thinking(Random& random) {
  const uint64_t a = random.below(90), b = random.below(90);
  return fmt::format(
      R"({{"conversations": {}}})",
      turns_json({{"user", fmt::format("How much is {} + {}?", a, b)},
                  {"assistant", fmt::format("It is {}.", a + b),
                   fmt::format(R"(, "reasoning_content": {})",
                               json_string(fmt::format("{} and {} make {}.", a, b, a + b)))}}));
}

std::string SampleRecords::minimind_tools(Random& random) {
  const std::string town = word_of(random, kPlaces);
  const uint64_t degrees = random.below(35);
  const std::string tools =
      R"([{"type": "function", "function": {"name": "weather", "description": "The weather of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}])";
  const std::string call =
      fmt::format(R"([{{"name": "weather", "arguments": {{"place": {}}}}}])", json_string(town));
  return fmt::format(
      R"({{"conversations": {}}})",
      turns_json({{"system", "You may use tools.", fmt::format(R"(, "tools": {})", json_string(tools))},
                  {"user", fmt::format("How warm is it at the {}?", town)},
                  {"assistant", "", fmt::format(R"(, "tool_calls": {})", json_string(call))},
                  {"tool", fmt::format(R"({{"degrees": {}}})", degrees)},
                  {"assistant", fmt::format("It has {} degrees.", degrees)}}));
}

std::string SampleRecords::choice(Random& random) {
  const uint64_t a = 2 + random.below(40), b = 2 + random.below(40), right = random.below(4);
  std::vector<std::string> choices;
  for (uint64_t i = 0; i < 4; ++i)
    choices.push_back(json_string(fmt::format("{}", a + b + 3 * i - 3 * right)));
  return fmt::format(R"({{"question": {}, "subject": "sample_arithmetic", "choices": [{}], "answer": {}}})",
                     json_string(fmt::format("{} has {} {} and gets {} more. How many are there now?",
                                             word_of(random, kPeople), a, word_of(random, kThings), b)),
                     fmt::join(choices, ", "), right);
}

std::string SampleRecords::gsm8k(Random& random) {
  const uint64_t boxes = 2 + random.below(8), each = 2 + random.below(12),
                 given = 1 + random.below(boxes * each - 1);
  const std::string name = word_of(random, kPeople), things = word_of(random, kThings);
  const uint64_t all = boxes * each, left = all - given;
  return fmt::format(
      R"({{"question": {}, "answer": {}}})",
      json_string(fmt::format("{} has {} boxes of {} {} and gives {} of them away. How many {} are left?",
                              name, boxes, each, things, given, things)),
      json_string(fmt::format(
          "There are {0}*{1}=<<{0}*{1}={2}>>{2} {3} in all.\nOf these {2}-{4}=<<{2}-{4}={5}>>{5} are "
          "left.\n#### {5}",
          boxes, each, all, things, given, left)));
}

SamplePair sample_pair(Random& random) {
  SamplePair pair{made_up_sentence(random), {}};
  std::string word;
  std::vector<std::string> words;
  for (const char c : pair.source + " ") {
    if (c != ' ') {
      word += c;
      continue;
    }
    std::ranges::reverse(word);
    words.push_back(std::move(word));
    word.clear();
  }
  std::ranges::reverse(words);
  pair.target = fmt::format("{}", fmt::join(words, " "));
  return pair;
}

}  // namespace tightloop
