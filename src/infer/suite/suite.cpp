#include "infer/suite/suite.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "infer/suite/suite_prompts.h"
#include "infer/suite/suite_runs.h"

namespace tightloop {

double SuiteTaskResult::accuracy() const {
  if (right.empty()) return 0;
  return std::accumulate(right.begin(), right.end(), 0.0) / static_cast<double>(right.size());
}

double SuiteTaskResult::standard_error() const {
  const double p = accuracy(), n = static_cast<double>(right.size());
  return n > 1 ? std::sqrt(p * (1 - p) / (n - 1)) : 0;
}

double SuiteResult::core() const {
  double sum = 0;
  for (const auto& task : tasks) sum += task.centered();
  return tasks.empty() ? 0 : sum / static_cast<double>(tasks.size());
}

double SuiteResult::core_error() const {
  double squares = 0;
  for (const auto& task : tasks) squares += std::pow(task.standard_error() / (1 - task.baseline), 2);
  return tasks.empty() ? 0 : std::sqrt(squares) / static_cast<double>(tasks.size());
}

void check_suite(const Suite& suite, const SuiteModel& model, const SuiteOptions& options) {
  for (const SuiteTask& task : suite.tasks) {
    if (task.chats() && !model.chat)
      throw usage_error(
          "task '{}' is of the kind {}, which is asked in a conversation, and the model's tokenizer has no "
          "control tokens of a chat template (chat.form).",
          task.name, name_of(task.kind));
    if (task.kind == SuiteKind::kCode && options.python.empty())
      throw usage_error(
          "task '{}' runs programs that the model writes. Name the Python that may run them: --python "
          "/usr/bin/python3. docs/evaluation.md says what they are kept from, and what not.",
          task.name);
    if (!task.chats()) begin_token(task, model.tokenizer);
  }
}

void check_problems(const Suite& suite, const SuiteModel& model) {
  for (const SuiteTask& task : suite.tasks)
    for (size_t problem = 0; problem < task.problems.size(); ++problem) check_prompt(task, problem, model);
}

SuiteResult run_suite(const Suite& suite, const SuiteModel& model, const SuiteOptions& options) {
  check_suite(suite, model, options);
  SuiteResult result{suite.name, {}};
  for (const SuiteTask& task : suite.tasks) {
    const auto start = std::chrono::steady_clock::now();
    auto found = task.kind == SuiteKind::kChatChoice ? choose_labels(task, model, options)
                 : task.writes()                     ? write_answers(task, model, options)
                                                     : score_texts(task, model, options);
    found.name = task.name, found.kind = task.kind, found.shots = task.shots, found.baseline = task.baseline;
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.tasks.push_back(std::move(found));
  }
  return result;
}

}  // namespace tightloop
