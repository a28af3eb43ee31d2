#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/tasks.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// How often a model's answer was right to the letter.
struct ExactMatch {
  struct Score {
    int64_t asked = 0, right = 0;
    double share() const { return asked ? static_cast<double>(right) / static_cast<double>(asked) : 0; }
  };
  struct Example {
    Question question;
    std::string answer;
  };
  std::map<std::string, Score> by_task;
  Score all;
  std::vector<Example> examples;  // the first few of each task
};

/// Asks every question, greedily, in batches, and compares. `examples_per_task` answers are kept to be shown.
ExactMatch exact_match(LanguageModel& model, const Tokenizer& tokenizer,
                       const std::vector<Question>& questions, int examples_per_task = 2);

}  // namespace tightloop
