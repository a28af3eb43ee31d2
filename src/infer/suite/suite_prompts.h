#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/render/chat.h"
#include "infer/suite/suite_task.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

struct SuiteModel;

/// A text whose tokens [start, end) are scored: one choice of a problem, or its continuation.
struct ScoredText {
  size_t problem = 0, choice = 0;
  std::vector<int32_t> ids{};
  int64_t start = 0, end = 0;
  size_t bytes = 0;  // of the choice's text

  size_t length() const { return ids.size(); }
};

/// The token that the texts of a task begin with; a usage error where the tokenizer has none of its name.
int32_t begin_token(const SuiteTask& task, const Tokenizer& tokenizer);

/// A data error where a problem lacks what its task asks for.
void check_problem(const SuiteTask& task, size_t problem);
/// The same, of what only a model and its tokenizer can tell: labels of one token, a context that its text
/// begins with, room for the prompt.
void check_prompt(const SuiteTask& task, size_t problem, const SuiteModel& model);

/// The texts of a problem of the kinds multiple_choice (one for each choice, which share their beginning),
/// schema (which share their end) and language_modeling (one), written and cut into tokens as nanochat's
/// core_eval.py does it. No more than `longest` tokens of each, its last ones.
std::vector<ScoredText> scored_texts(const SuiteTask& task, size_t problem, const Tokenizer& tokenizer,
                                     int64_t longest);

/// A data error where the model cannot read so many tokens, of a prompt that cannot lose its beginning.
void demand_room(const SuiteTask& task, size_t problem, size_t tokens, int64_t longest);

/// What a problem is asked with that is answered in writing: a chat's question, or a text. A data error where
/// the model cannot read so much.
std::vector<int32_t> writing_prompt(const SuiteTask& task, size_t problem, const SuiteModel& model);

/// A chat's multiple choice: the prompt, a token for each label, and which of them is right.
struct ChatChoice {
  std::vector<int32_t> prompt{};
  std::vector<int32_t> labels{};
  size_t right = 0;
};
ChatChoice chat_choice(const SuiteTask& task, size_t problem, const Tokenizer& tokenizer,
                       const ChatTemplate& chat, const std::string& variables = "");

}  // namespace tightloop
