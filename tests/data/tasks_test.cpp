#include "data/generate/tasks.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "support.h"

namespace tightloop {
namespace {

// The answer worked out from the prompt alone, another way than the generator does it.
std::string solve(const std::string& prompt) {
  std::istringstream in(prompt);
  std::string task, a, b, c;
  in >> task >> a >> b >> c;
  if (task == "reverse") return {a.rbegin(), a.rend()};
  if (task == "add") return std::to_string(std::stoi(a) + std::stoi(b));
  if (task == "count") return std::to_string(std::count(c.begin(), c.end(), a[0]));
  const std::multiset<char> letters(a.begin(), a.end());
  return {letters.begin(), letters.end()};
}

TEST(Tasks, AnswersAreRight) {
  TasksConfig config;
  config.questions = 4000;
  for (const auto& questions : {training_questions(config), held_out_questions(config)})
    for (const Question& question : questions) {
      EXPECT_EQ(question.answer, solve(question.prompt)) << question.prompt;
      EXPECT_TRUE(question.prompt.ends_with(" =")) << question.prompt;
      EXPECT_LE(question.line().size(), 31u) << question.line();
    }
}

TEST(Tasks, HeldOutQuestionsAreNeverTrained) {
  TasksConfig config;
  std::set<std::string> trained, examined;
  for (const Question& question : training_questions(config)) trained.insert(question.prompt);
  for (const Question& question : held_out_questions(config)) {
    EXPECT_FALSE(trained.count(question.prompt)) << question.prompt;
    EXPECT_TRUE(examined.insert(question.prompt).second) << "twice: " << question.prompt;
  }
  EXPECT_EQ(examined.size(), 400u);
  EXPECT_GT(trained.size(), 60000u);
}

TEST(Tasks, AreDeterministicAndFollowTheSeed) {
  TasksConfig config;
  config.questions = 100;
  const auto first = training_questions(config), again = training_questions(config);
  config.seed = 2;
  const auto other = training_questions(config);
  int same = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].line(), again[i].line());
    same += first[i].line() == other[i].line();
  }
  EXPECT_LT(same, 10);
}

TEST(Tasks, NoAnswerCanBeGuessedFromFrequency) {
  TasksConfig config;
  config.questions = 40000;
  std::map<std::string, std::map<std::string, int>> answers;
  std::map<std::string, int> totals;
  for (const Question& question : training_questions(config)) {
    ++answers[question.task][question.answer];
    ++totals[question.task];
  }
  ASSERT_EQ(answers.size(), 4u);
  for (const auto& [task, counts] : answers) {
    int most = 0;
    for (const auto& [answer, count] : counts) most = std::max(most, count);
    EXPECT_LT(most, totals[task] * (task == "count" ? 0.25 : 0.02)) << task;
    EXPECT_EQ(totals[task], 10000);
  }
}

TEST(Tasks, SizesCanBeTuned) {
  TasksConfig config;
  config.kinds = {"sort"};
  config.shortest_word = config.longest_word = 4;
  config.letters = 3;
  config.questions = 50;
  config.held_out = 50;
  for (const Question& question : training_questions(config)) {
    EXPECT_EQ(question.task, "sort");
    EXPECT_EQ(question.answer.size(), 4u);
    EXPECT_LE(question.answer.find_last_of("abc"), 3u);
  }
  EXPECT_LT(held_out_questions(config).size(), 30u);  // 81 words in all, 5 % of them
}

TEST(Tasks, UnknownKindIsNamed) {
  TasksConfig config;
  config.kinds = {"revers"};
  const auto message = testing::error_of(ExitCode::kUsage, [&] { training_questions(config); });
  EXPECT_NE(message.find("'reverse'"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
