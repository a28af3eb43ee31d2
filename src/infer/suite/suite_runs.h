#pragma once

#include "infer/suite/suite.h"
#include "infer/suite/suite_prompts.h"

namespace tightloop {

// Each asks all problems of a task; name, kind and times are the caller's to fill in.

/// multiple_choice, schema and language_modeling.
SuiteTaskResult score_texts(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options);
/// chat_choice.
SuiteTaskResult choose_labels(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options);
/// generation, chat_generation and code.
SuiteTaskResult write_answers(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options);

}  // namespace tightloop
