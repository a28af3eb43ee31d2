#include "infer/suite/training_suite.h"

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "infer/calculator_calls.h"
#include "infer/chat_session.h"
#include "infer/suite/suite.h"

namespace tightloop {

namespace {

/// A suite and what it is asked of, kept from one measurement to the next.
struct TrainingSuite {
  TrainingSuite(Task& task, const Recipe& recipe, const std::vector<int32_t>& imported)
      : suite(read_suite(recipe.eval.suite)),
        chat(chat_template(recipe.chat, task.tokenizer())),
        calculator(task.tokenizer()),
        model{task.language_model(), task.tokenizer(), chat.get(),
              stop_tokens(task.tokenizer(), chat.get(), imported), &calculator} {
    if (std::ranges::count(suite.tasks, SuiteKind::kCode, &SuiteTask::kind) > 0)
      throw usage_error(
          "'{}' (eval.suite) has a task of the kind code: programs that a model writes are not run during "
          "training. Measure it by 'tightloop eval --suite'.",
          recipe.eval.suite);
    options.progress = options.graphs = false;
    if (!chat && std::ranges::any_of(suite.tasks, &SuiteTask::chats))
      ChatTemplate(recipe.chat, task.tokenizer());  // which says why there is none
    check_suite(suite, model, options);
    check_problems(suite, model);
  }

  Task::Evaluation measure() const {
    const auto result = run_suite(suite, model, options);
    Task::Evaluation values{{"eval/core", result.core()}};
    for (const auto& task : result.tasks) values.emplace_back("eval/suite/" + task.name, task.accuracy());
    return values;
  }

  const Suite suite;
  const std::unique_ptr<ChatTemplate> chat;
  const CalculatorCalls calculator;
  const SuiteModel model;
  SuiteOptions options;
};

}  // namespace

std::function<Task::Evaluation()> training_suite(Task& task, const Recipe& recipe,
                                                 const std::vector<int32_t>& imported) {
  if (recipe.eval.suite.empty()) return {};
  if (recipe.model.translates())
    throw usage_error("eval.suite is for language models, and model.family is {}.", recipe.model.family);
  const auto suite = std::make_shared<const TrainingSuite>(task, recipe, imported);
  return [suite] { return suite->measure(); };
}

}  // namespace tightloop
