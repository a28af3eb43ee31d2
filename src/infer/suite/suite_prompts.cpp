#include "infer/suite/suite_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "data/render/render.h"
#include "infer/decoder.h"
#include "infer/suite/suite.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop {

namespace {

using python_text::strip;

/// What a problem looks like with the right answer behind it.
std::string with_answer(const SuiteTask& task, size_t problem) {
  switch (task.kind) {
    case SuiteKind::kMultipleChoice: {
      const auto choices = suite_texts(task, problem, task.choices_field);
      return suite_text(task, problem, task.question_field) + task.delimiter +
             choices[suite_gold(task, problem, choices.size())];
    }
    case SuiteKind::kSchema: {
      const auto contexts = suite_texts(task, problem, task.choices_field);
      return contexts[suite_gold(task, problem, contexts.size())] + task.delimiter +
             suite_text(task, problem, task.question_field);
    }
    default:
      return std::string(strip(suite_text(task, problem, task.question_field))) + task.delimiter +
             suite_text(task, problem, task.answer_field);
  }
}

std::string examples_text(const SuiteTask& task, size_t problem) {
  std::string text;
  for (const size_t example : task.examples_for(problem)) text += with_answer(task, example) + "\n\n";
  return text;
}

std::vector<int32_t> text_ids(const SuiteTask& task, const std::string& text, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids{begin_token(task, tokenizer)};
  tokenizer.encode(text, ids, SpecialText::kText);
  return ids;
}

/// How many tokens all texts have in common, at their beginning or at their end.
int64_t common_length(const std::vector<ScoredText>& texts, bool at_end) {
  size_t shortest = texts[0].ids.size();
  for (const auto& text : texts) shortest = std::min(shortest, text.ids.size());
  const auto token = [&](const ScoredText& text, size_t i) {
    return at_end ? text.ids[text.ids.size() - 1 - i] : text.ids[i];
  };
  size_t length = 0;
  while (length < shortest && std::ranges::all_of(texts, [&](const auto& text) {
           return token(text, length) == token(texts[0], length);
         }))
    ++length;
  return static_cast<int64_t>(length);
}

void keep_last(const SuiteTask& task, ScoredText& text, int64_t longest) {
  if (text.ids.size() < 2)
    throw data_error("{}: there is nothing to score.", suite_place(task, text.problem));
  const int64_t cut = static_cast<int64_t>(text.ids.size()) - longest;
  if (cut <= 0) return;
  if (text.start - cut < 1)
    throw data_error("{}: what is scored has {} tokens, and the model reads {} at most.",
                     suite_place(task, text.problem), text.end - text.start, longest);
  text.ids.erase(text.ids.begin(), text.ids.begin() + cut);
  text.start -= cut, text.end -= cut;
}

/// A record as the renderers of training read it.
DataConfig suite_fields(const SuiteTask& task) {
  DataConfig config;
  config.question_field = task.question_field, config.choices_field = task.choices_field;
  config.answer_field = task.answer_field;
  return config;
}

/// The question with its choices as a chat is asked it, and what belongs to it.
struct AskedChoice {
  std::string text;
  std::vector<std::string> labels{};
  size_t right = 0;
};

AskedChoice asked_choice(const SuiteTask& task, size_t problem) {
  RecordBatch held;
  const std::string json = task.problems[problem].dump();
  held.add({.bytes = json, .second = {}});
  try {
    const ChoiceQuestion choice = read_choice(held[0].bytes, suite_fields(task));
    AskedChoice asked{choice_text(choice), {}, choice.right};
    for (const auto label : choice.labels) asked.labels.emplace_back(label);
    return asked;
  } catch (const BadRecord& bad) {
    throw data_error("{}: {}.", suite_place(task, problem), bad.why);
  }
}

std::vector<int32_t> label_tokens(const SuiteTask& task, size_t problem,
                                  const std::vector<std::string>& labels, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (const std::string& label : labels) {
    const auto ids = tokenizer.encode(label, SpecialText::kText);
    if (ids.size() != 1)
      throw data_error("{}: the label '{}' has {} tokens, and a choice is made by one.",
                       suite_place(task, problem), label, ids.size());
    tokens.push_back(ids[0]);
  }
  return tokens;
}

/// Where the tokens of a text part from those of what stands before it.
int64_t parting(const std::vector<int32_t>& before, const std::vector<int32_t>& text) {
  return std::ranges::mismatch(before, text).in2 - text.begin();
}

/// The question of a text that is continued, behind its examples.
std::vector<int32_t> generation_prompt(const SuiteTask& task, size_t problem, const Tokenizer& tokenizer) {
  const std::string question(strip(suite_text(task, problem, task.question_field)));
  const std::string text = examples_text(task, problem) + question + task.delimiter;
  return text_ids(task, std::string(strip(text)), tokenizer);
}

/// A question as a user's turn, the examples' questions and answers as turns before it.
std::vector<int32_t> chat_prompt(const SuiteTask& task, size_t problem, const ChatTemplate& chat,
                                 const std::string& variables) {
  std::vector<std::string> texts;
  for (const size_t example : task.examples_for(problem)) {
    texts.push_back(suite_text(task, example, task.question_field));
    texts.push_back(suite_text(task, example, task.answer_field));
  }
  texts.push_back(suite_text(task, problem, task.question_field));
  std::vector<Message> messages;
  for (const std::string& text : texts) {
    if (const auto token = chat.smuggled_token(text); !token.empty())
      throw data_error("{} holds '{}', a control token that this tokenizer cannot spell out.",
                       suite_place(task, problem), token);
    messages.push_back({messages.size() % 2 ? Role::kAssistant : Role::kUser, text});
  }
  Conversation conversation(messages);
  conversation.variables = variables;
  return chat.prompt(conversation);
}

}  // namespace

void check_problem(const SuiteTask& task, size_t problem) {
  switch (task.kind) {
    case SuiteKind::kMultipleChoice:
    case SuiteKind::kSchema:
    case SuiteKind::kLanguageModeling:
      with_answer(task, problem);
      return;
    case SuiteKind::kChatChoice:
      asked_choice(task, problem);
      return;
    case SuiteKind::kCode:
      for (const std::string& field : {task.question_field, std::string("test"), std::string("entry_point")})
        suite_text(task, problem, field);
      if (task.shots > 0) suite_text(task, problem, task.answer_field);  // any may be an example
      return;
    case SuiteKind::kGeneration:
    case SuiteKind::kChatGeneration:
      suite_text(task, problem, task.question_field);
      const std::string expected = suite_text(task, problem, task.answer_field);
      if (!matches(task.match, expected, expected))
        throw data_error("{}: there is no number in '{}' to compare with (match: {}).",
                         suite_place(task, problem), task.answer_field, name_of(task.match));
  }
}

void check_prompt(const SuiteTask& task, size_t problem, const SuiteModel& model) {
  const int64_t longest = longest_sequence(model.model.config());
  if (task.kind == SuiteKind::kChatChoice)
    demand_room(
        task, problem,
        chat_choice(task, problem, model.tokenizer, *model.chat, model.template_variables).prompt.size(),
        longest);
  else if (task.writes())
    writing_prompt(task, problem, model);
  else
    scored_texts(task, problem, model.tokenizer, longest);
}

int32_t begin_token(const SuiteTask& task, const Tokenizer& tokenizer) {
  if (task.begin.empty()) return tokenizer.end_of_text();
  const auto id = tokenizer.token_id(task.begin);
  if (!id)
    throw usage_error("task '{}' begins its texts with '{}', and the tokenizer has no such token.", task.name,
                      task.begin);
  return *id;
}

std::vector<ScoredText> scored_texts(const SuiteTask& task, size_t problem, const Tokenizer& tokenizer,
                                     int64_t longest) {
  const std::string examples = examples_text(task, problem);
  std::vector<ScoredText> texts;
  const auto add = [&](const std::string& text, const std::string& choice) {
    texts.push_back({problem, texts.size(), text_ids(task, examples + text, tokenizer)});
    texts.back().bytes = choice.size();
    texts.back().end = static_cast<int64_t>(texts.back().ids.size());
  };
  const std::string question = suite_text(task, problem, task.question_field);
  if (task.kind == SuiteKind::kMultipleChoice) {
    for (const auto& choice : suite_texts(task, problem, task.choices_field))
      add(question + task.delimiter + choice, choice);
    // CORE leaves out what all choices begin with. By bytes or as a whole, every choice counts in full.
    const int64_t start = common_length(texts, /*at_end=*/false);
    const auto before = text_ids(task, examples + question + task.delimiter, tokenizer);
    for (auto& text : texts)
      text.start = task.normalize == ChoiceNorm::kTokens ? start : parting(before, text.ids);
  } else if (task.kind == SuiteKind::kSchema) {
    for (const auto& context : suite_texts(task, problem, task.choices_field))
      add(context + task.delimiter + question, question);
    const int64_t length = common_length(texts, /*at_end=*/true);
    for (auto& text : texts) text.start = text.end - length;
  } else {
    const std::string context = std::string(strip(question)) + task.delimiter;
    const std::string answer = suite_text(task, problem, task.answer_field);
    add(context + answer, answer);
    // Without the continuation, and without white space that would join its first token.
    const auto before = text_ids(task, std::string(strip(examples + context)), tokenizer);
    texts[0].start = static_cast<int64_t>(before.size());
    if (texts[0].start >= texts[0].end ||
        !std::ranges::equal(before, std::span(texts[0].ids).first(before.size())))
      throw data_error(
          "{}: the tokens of the context are not those that the whole text begins with, so that its "
          "continuation cannot be scored. Try another delimiter.",
          suite_place(task, problem));
  }
  for (auto& text : texts) keep_last(task, text, longest);
  return texts;
}

void demand_room(const SuiteTask& task, size_t problem, size_t tokens, int64_t longest) {
  if (std::cmp_greater(tokens, longest))
    throw data_error(
        "{}: the prompt has {} tokens, and the model reads {} at most. Fewer shots make it shorter.",
        suite_place(task, problem), tokens, longest);
}

ChatChoice chat_choice(const SuiteTask& task, size_t problem, const Tokenizer& tokenizer,
                       const ChatTemplate& chat, const std::string& variables) {
  std::vector<AskedChoice> asked;
  for (const size_t example : task.examples_for(problem)) asked.push_back(asked_choice(task, example));
  asked.push_back(asked_choice(task, problem));
  std::vector<Message> messages;
  for (const AskedChoice& choice : asked) {
    messages.push_back({Role::kUser, choice.text});
    messages.push_back({Role::kAssistant, choice.labels[choice.right]});
  }
  messages.pop_back();
  Conversation conversation(messages);
  conversation.variables = variables;
  return {chat.prompt(conversation, /*answers_at_once=*/true),
          label_tokens(task, problem, asked.back().labels, tokenizer), asked.back().right};
}

std::vector<int32_t> writing_prompt(const SuiteTask& task, size_t problem, const SuiteModel& model) {
  auto ids = task.chats() ? chat_prompt(task, problem, *model.chat, model.template_variables)
                          : generation_prompt(task, problem, model.tokenizer);
  demand_room(task, problem, ids.size(), longest_prompt(model.model.config()));
  return ids;
}

}  // namespace tightloop
