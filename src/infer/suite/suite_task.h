#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

/// How a task is asked, and what counts as right.
enum class SuiteKind {
  kMultipleChoice,
  kSchema,
  kLanguageModeling,
  kGeneration,
  kChatChoice,
  kChatGeneration,
  kCode
};
template <>
inline constexpr auto kChoices<SuiteKind> = std::to_array<Choice<SuiteKind>>({
    {SuiteKind::kMultipleChoice, "multiple_choice", "the likeliest of several continuations of a query"},
    {SuiteKind::kSchema, "schema", "the context after which the same continuation is likeliest"},
    {SuiteKind::kLanguageModeling, "language_modeling", "every token of the continuation is the likeliest"},
    {SuiteKind::kGeneration, "generation", "a text is continued, and compared with the answer"},
    {SuiteKind::kChatChoice, "chat_choice",
     "a chat model's likeliest letter of a multiple choice (MMLU, ARC)"},
    {SuiteKind::kChatGeneration, "chat_generation", "a chat model's answer, compared (GSM8K)"},
    {SuiteKind::kCode, "code", "a chat model's Python program, run with its tests (HumanEval)"},
});

/// What the loss of a choice is divided by before choices are compared.
enum class ChoiceNorm { kTokens, kBytes, kNone };
template <>
inline constexpr auto kChoices<ChoiceNorm> = std::to_array<Choice<ChoiceNorm>>({
    {ChoiceNorm::kTokens, "tokens", "its number of tokens, as CORE"},
    {ChoiceNorm::kBytes, "bytes", "the bytes of its text"},
    {ChoiceNorm::kNone, "none"},
});

/// When an answer that was written out is right.
enum class AnswerMatch { kAuto, kExact, kNumber, kMarked };
template <>
inline constexpr auto kChoices<AnswerMatch> = std::to_array<Choice<AnswerMatch>>({
    {AnswerMatch::kAuto, "auto", "marked for chat_generation, else exact"},
    {AnswerMatch::kExact, "exact", "it is the expected text, spaces around it left out"},
    {AnswerMatch::kNumber, "number", "its last number has the value of the expected one's last"},
    {AnswerMatch::kMarked, "marked",
     "its first number behind '#### ' is spelled like the expected one's, as nanochat has it"},
});

/// One task of a suite: how its problems are asked, and the problems.
struct SuiteTask {
  std::string name, data;
  SuiteKind kind = SuiteKind::kMultipleChoice;
  int64_t shots = 0, max_problems = 0, seed = 1337;
  double baseline = 0;
  std::string delimiter = " ", begin;
  ChoiceNorm normalize = ChoiceNorm::kTokens;
  std::string question_field, choices_field, answer_field;
  AnswerMatch match = AnswerMatch::kAuto;
  int64_t max_tokens = 0, samples = 1;
  double temperature = 0;
  std::vector<std::string> stop;
  bool calculator = true;

  std::vector<nlohmann::json> problems{};  // in the order in which they are asked
  std::string file{};                      // that they are from
  std::vector<int64_t> lines{};            // of it, by problem

  bool chats() const {
    return kind == SuiteKind::kChatChoice || kind == SuiteKind::kChatGeneration || kind == SuiteKind::kCode;
  }
  bool writes() const {
    return kind == SuiteKind::kGeneration || kind == SuiteKind::kChatGeneration || kind == SuiteKind::kCode;
  }
  /// Fills in what depends on the kind.
  void resolve();
  void describe(Fields& fields);

  /// The problems that stand before problem `index` as examples, by Python's random.Random(1234 + index).
  std::vector<size_t> examples_for(size_t index) const;
};

/// The text of a problem's field; a data error names task and problem where it has none.
std::string suite_text(const SuiteTask& task, size_t problem, const std::string& field);
std::vector<std::string> suite_texts(const SuiteTask& task, size_t problem, const std::string& field);
/// The number in task.answer_field, below `count`.
size_t suite_gold(const SuiteTask& task, size_t problem, size_t count);
/// "'suites/arc.jsonl', line 12 (task 'arc')"
std::string suite_place(const SuiteTask& task, size_t problem);

}  // namespace tightloop
