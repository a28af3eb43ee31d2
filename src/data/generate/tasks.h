#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

/// One question of the built-in data set: `reverse stone =` and `enots`.
struct Question {
  std::string task, prompt, answer;
  /// As training sees it: the prompt, a space, the answer.
  std::string line() const { return prompt + " " + answer; }
};

/// The section `tasks`: the size and the difficulty of the generated questions.
struct TasksConfig {
  std::vector<std::string> kinds{"reverse", "sort", "count", "add"};
  int64_t questions = 100000;
  int64_t held_out = 400;
  double held_out_share = 0.05;
  int64_t shortest_word = 3, longest_word = 6;
  int64_t letters = 26;
  int64_t largest_count = 4;
  int64_t largest_number = 99;
  int64_t seed = 1;

  void describe(Fields& fields);
};

/// The questions to learn from, kinds in equal shares, the same on every machine. Small kinds (adding has
/// only 10,000 questions) repeat.
std::vector<Question> training_questions(const TasksConfig& config);

/// Questions that training_questions() never holds, none twice, kinds in equal shares. Which side a prompt
/// belongs to is decided by its hash alone, so it holds for any size and seed.
std::vector<Question> held_out_questions(const TasksConfig& config);

}  // namespace tightloop
