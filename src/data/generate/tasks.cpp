#include "data/generate/tasks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "data/read/held_out.h"

namespace tightloop {

namespace {

std::string random_word(const TasksConfig& config, Random& random) {
  std::string word(config.shortest_word + random.below(config.longest_word - config.shortest_word + 1), 'a');
  for (char& letter : word) letter = static_cast<char>('a' + random.below(config.letters));
  return word;
}

Question reverse_question(const TasksConfig& config, Random& random) {
  const std::string word = random_word(config, random);
  return {"reverse", "reverse " + word + " =", std::string(word.rbegin(), word.rend())};
}

Question sort_question(const TasksConfig& config, Random& random) {
  std::string word = random_word(config, random);
  std::string prompt = "sort " + word + " =";
  std::ranges::sort(word);
  return {"sort", std::move(prompt), std::move(word)};
}

// The count is drawn first, so that each is as frequent as the others and none can be guessed.
Question count_question(const TasksConfig& config, Random& random) {
  std::string word = random_word(config, random);
  const char wanted = static_cast<char>('a' + random.below(config.letters));
  const auto length = static_cast<int64_t>(word.size());
  const int64_t count = random.below(std::min(config.largest_count, length) + 1);
  for (int64_t i = 0; i < length; ++i) {
    if (i < count) word[i] = wanted;
    while (i >= count && word[i] == wanted) word[i] = static_cast<char>('a' + random.below(config.letters));
  }
  for (int64_t i = length - 1; i > 0; --i) std::swap(word[i], word[random.below(i + 1)]);
  return {"count", fmt::format("count {} in {} =", wanted, word), fmt::format("{}", count)};
}

Question add_question(const TasksConfig& config, Random& random) {
  const uint64_t a = random.below(config.largest_number + 1), b = random.below(config.largest_number + 1);
  return {"add", fmt::format("add {} {} =", a, b), fmt::format("{}", a + b)};
}

struct TaskKind {
  std::string_view name;
  Question (*make)(const TasksConfig&, Random&);
};
constexpr TaskKind kTasks[] = {
    {"reverse", reverse_question}, {"sort", sort_question}, {"count", count_question}, {"add", add_question}};

Question make_question(const std::string& kind, const TasksConfig& config, Random& random) {
  std::vector<std::string> names;
  for (const TaskKind& task : kTasks) {
    if (task.name == kind) return task.make(config, random);
    names.emplace_back(task.name);
  }
  const auto guess = nearest(kind, names);
  throw usage_error("tasks.kinds: there is no task '{}'.{}", kind,
                    guess ? fmt::format(" Did you mean '{}'?", *guess)
                          : fmt::format(" There are {}.", fmt::join(names, ", ")));
}

bool is_held_out(const Question& question, const TasksConfig& config) {
  return tightloop::is_held_out(question.prompt, config.held_out_share);
}

void check(const TasksConfig& config) {
  if (config.kinds.empty()) throw usage_error("tasks.kinds is empty: name at least one task.");
  if (config.shortest_word > config.longest_word) {
    throw usage_error("tasks.shortest_word ({}) is above tasks.longest_word ({}).", config.shortest_word,
                      config.longest_word);
  }
}

}  // namespace

void TasksConfig::describe(Fields& fields) {
  fields.add("kinds", kinds, "Which tasks to generate: reverse, sort, count, add");
  fields.add("questions", questions, "Questions to learn from").range(1, 1e9);
  fields.add("held_out", held_out, "Held-out questions").range(0, 1e6);
  fields.add("held_out_share", held_out_share, "Fraction of all possible questions that training never sees")
      .range(0, 0.9);
  fields.add("shortest_word", shortest_word, "Letters in the shortest word").range(1, 64);
  fields.add("longest_word", longest_word, "Letters in the longest word").range(1, 64);
  fields.add("letters", letters, "How many letters of the alphabet words are made of").range(2, 26);
  fields.add("largest_count", largest_count, "Most occurrences of a letter that is counted").range(1, 9);
  fields.add("largest_number", largest_number, "Largest number to add").range(1, 1e9);
  fields.add("seed", seed, "Another seed generates other questions");
}

std::vector<Question> training_questions(const TasksConfig& config) {
  check(config);
  if (config.held_out_share >= 1) throw usage_error("tasks.held_out_share leaves nothing to learn from.");
  std::vector<Question> questions;
  questions.reserve(config.questions);
  for (int64_t i = 0; i < config.questions; ++i) {
    Random random(config.seed, i);
    const std::string& kind = config.kinds[i % config.kinds.size()];
    int tries = 0;
    Question question = make_question(kind, config, random);
    while (is_held_out(question, config)) {
      // Happens only when a kind has a handful of questions in all, every one of them held out.
      if (++tries > 10000)
        throw usage_error("tasks: all '{}' questions are held out; allow longer words.", kind);
      question = make_question(kind, config, random);
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

std::vector<Question> held_out_questions(const TasksConfig& config) {
  check(config);
  std::vector<Question> questions;
  std::unordered_set<std::string> seen;
  if (config.held_out_share <= 0) return questions;
  for (int64_t i = 0; i < config.held_out; ++i) {
    Random random(config.seed, ~static_cast<uint64_t>(i));
    const std::string& kind = config.kinds[i % config.kinds.size()];
    // A kind may have fewer held-out questions than were asked for; then there are fewer.
    for (int tries = 0; tries < 20000; ++tries) {
      Question question = make_question(kind, config, random);
      if (!is_held_out(question, config) || !seen.insert(question.prompt).second) continue;
      questions.push_back(std::move(question));
      break;
    }
  }
  return questions;
}

}  // namespace tightloop
