#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/render/chat.h"
#include "infer/calculator_calls.h"
#include "infer/suite/suite_file.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Who is measured. All must outlive it.
struct SuiteModel {
  LanguageModel& model;
  const Tokenizer& tokenizer;
  const ChatTemplate* chat = nullptr;           // null: it has none, and chat tasks are usage errors
  std::vector<int32_t> stop_tokens{};           // what ends an answer
  const CalculatorCalls* calculator = nullptr;  // null: nobody answers calls
  std::string template_variables{};             // of the chat template: a JSON object, or empty
};

struct SuiteOptions {
  size_t rows = 32;      // in a batch
  std::string python{};  // the interpreter that runs programs; empty: none may be run
  bool progress = true;  // for people
  bool graphs = true;    // GenerateOptions::graphs
};

/// What came of a task.
struct SuiteTaskResult {
  std::string name{};
  SuiteKind kind = SuiteKind::kMultipleChoice;
  int64_t shots = 0;
  double baseline = 0, seconds = 0;
  std::vector<uint8_t> right{};               // by problem
  std::vector<std::vector<double>> losses{};  // multiple_choice and schema: what choices are compared by
  std::vector<std::string> answers{};         // the label that was chosen, or what was written (first sample)

  double accuracy() const;
  /// Of the accuracy, by the number of problems.
  double standard_error() const;
  /// 0 for guessing, 1 for all right.
  double centered() const { return (accuracy() - baseline) / (1 - baseline); }
};

struct SuiteResult {
  std::string name{};
  std::vector<SuiteTaskResult> tasks{};

  /// The mean of the tasks' centred accuracies: CORE, or of chat tasks ChatCORE.
  double core() const;
  double core_error() const;
};

/// A usage error where a task cannot be asked of this model or with these options.
void check_suite(const Suite& suite, const SuiteModel& model, const SuiteOptions& options);
/// A data error where a problem cannot be asked of this model: before hours of others are asked. After
/// check_suite().
void check_problems(const Suite& suite, const SuiteModel& model);

/// Asks everything, in batches of similar length.
SuiteResult run_suite(const Suite& suite, const SuiteModel& model, const SuiteOptions& options);

/// Whether an answer that was written out is right.
bool matches(AnswerMatch match, const std::string& answer, const std::string& expected);

/// The program that shows whether an answer to a problem of HumanEval is right, by ending well: the imports
/// of the prompt, the code of the answer (the first block between ``` lines, or all of it) and the tests.
std::string test_program(const std::string& prompt, const std::string& answer, const std::string& test,
                         const std::string& entry_point);

}  // namespace tightloop
