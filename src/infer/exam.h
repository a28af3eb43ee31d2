#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/generate/tasks.h"
#include "data/render/chat.h"
#include "data/store/documents.h"
#include "infer/calculator_calls.h"
#include "infer/sample.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// A question as tokens, with the answer that is expected.
struct ExamQuestion {
  std::string task{}, shown{}, expected{};  // `shown` is the question for people
  std::vector<int32_t> prompt{};
  std::vector<std::vector<int32_t>> choices{};  // of a multiple choice: the possible answers, as tokens
  size_t right = 0;                             // and which of them is right
  bool thinks = false;                          // a chat template lets the model think before it answers
};

struct ExamOptions {
  size_t rows = 64;                             // prompts in a batch
  int64_t samples = 1;                          // answers to each question that is not a multiple choice
  SamplingConfig sampling;                      // temperature 0 unless there are several samples
  std::vector<int32_t> stop_tokens;             // what ends an answer
  const CalculatorCalls* calculator = nullptr;  // answers calls; null: nobody does
  int examples_per_task = 2;
  std::function<void(size_t done, size_t total)> progress;
};

struct ExamResult {
  struct Score {
    int64_t asked = 0;   // questions
    int64_t passed = 0;  // with at least one right answer
    double right = 0;    // accuracy, summed over questions
    double accuracy() const { return asked ? right / static_cast<double>(asked) : 0; }
    double passed_share() const {
      return asked ? static_cast<double>(passed) / static_cast<double>(asked) : 0;
    }
  };
  struct Example {
    std::string shown, expected, answer;
    bool right = false;
  };
  std::map<std::string, Score> by_task;
  Score all;
  int64_t samples = 1;
  std::vector<Example> examples;  // the first few of each task
};

/// Asks every question, in batches. Multiple choice: the likeliest of the choices (the mean over its tokens).
/// Else the answer is written out and its final_answer(), thoughts left out, must be the expected one's.
ExamResult take_exam(LanguageModel& model, const Tokenizer& tokenizer,
                     const std::vector<ExamQuestion>& questions, const ExamOptions& options);

/// The most tokens that a thought before an answer takes, in questions that may have one.
inline constexpr int64_t kThoughtTokens = 512;

/// Greedy answers, as long as the longest that is expected and a little more (and a thought, where there may
/// be one), up to the end of text.
ExamOptions greedy_exam(const std::vector<ExamQuestion>& questions, const Tokenizer& tokenizer);

/// What is compared: what follows the last "####" (as GSM8K marks it; commas, a dollar sign and a final dot
/// left out), or else all of the text; spaces around it do not count.
std::string final_answer(std::string_view text);

/// The generated questions of data.source: tasks.
std::vector<ExamQuestion> exam_of(const std::vector<Question>& questions, const Tokenizer& tokenizer);

/// Answers with more tokens are not compared, unless there is "####" in them.
inline constexpr size_t kShortAnswer = 16;

/// Documents as questions: up to where something is to be learned it is the prompt, what is learned then is
/// the answer. Only those whose answer can be compared: with "####" in it, or at most kShortAnswer tokens.
/// The task is the document's source. At most `limit` (0: all) of each source.
std::vector<ExamQuestion> exam_of(const Documents& documents, const std::vector<std::string>& sources,
                                  const Tokenizer& tokenizer, const std::vector<int32_t>& stop_tokens,
                                  int64_t limit);

/// A JSONL file of {question, answer} and {question, choices, answer}, fields named as in `data`; a field
/// "task" groups them (default: the file's name). With a chat template a question stands as a user's turn,
/// asked as ChatSession asks it, a choice for an answer at once; without one as plain text, and the choices
/// are compared in their own words. `variables` of the template: a JSON object, or empty.
std::vector<ExamQuestion> read_exam(const std::string& file, const DataConfig& data,
                                    const Tokenizer& tokenizer, const ChatTemplate* chat,
                                    const std::vector<int32_t>& stop_tokens, int64_t limit,
                                    const std::string& variables = "");

}  // namespace tightloop
