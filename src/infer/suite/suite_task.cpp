#include "infer/suite/suite_task.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/random/python_random.h"

namespace tightloop {

void SuiteTask::describe(Fields& fields) {
  fields.add("name", name, "What results call it");
  fields.add("kind", kind, "How it is asked");
  fields.add("data", data, "A JSONL file of problems, from the folder of the suite's file");
  fields.add("shots", shots, "Other problems that stand before each one as examples, with their answers")
      .range(0, 1000);
  fields.add("baseline", baseline, "The accuracy of guessing, which centred accuracy subtracts")
      .range(0, 0.999999);
  fields.add("max_problems", max_problems, "Ask this many, after the shuffle; 0: all").range(0, 1e9);
  fields.add("seed", seed, "Of the shuffle, which is Python's random.Random(seed); -1: the file's order")
      .range(-1, 1e15);
  fields.add("delimiter", delimiter, "Between a query or context and what continues it");
  fields.add(
      "begin", begin,
      "The token that every text begins with (a chat begins as its template says); empty: the one that "
      "separates documents");
  fields.add("normalize", normalize, "What the loss of a choice is divided by");
  fields.add(
      "question_field", question_field,
      "The field with the question; empty: query, of schema continuation, of language_modeling context, "
      "of code prompt, else question");
  fields.add("choices_field", choices_field,
             "The field with the list to choose from; empty: choices, of schema context_options");
  fields.add("answer_field", answer_field,
             "The field with the answer; empty: gold, of language_modeling continuation, else answer");
  fields.add("match", match, "When an answer that was written out is right");
  fields.add("max_tokens", max_tokens, "Most tokens of an answer; 0: 64, of chats 512").range(0, 1e6);
  fields.add("stop", stop, "Texts that end an answer (generation without any: a line end)");
  fields.add("samples", samples, "Answers to each problem; one right one is enough").range(1, 1000);
  fields.add("temperature", temperature, "Sampling temperature of answers; 0: the likeliest token")
      .range(0, 100);
  fields.add("calculator", calculator, "Whether calls of the calculator in a chat's answers are answered");
}

void SuiteTask::resolve() {
  const auto set = [](std::string& field, const char* value) {
    if (field.empty()) field = value;
  };
  const bool by_likelihood = kind == SuiteKind::kMultipleChoice || kind == SuiteKind::kSchema;
  set(question_field, kind == SuiteKind::kMultipleChoice     ? "query"
                      : kind == SuiteKind::kSchema           ? "continuation"
                      : kind == SuiteKind::kLanguageModeling ? "context"
                      : kind == SuiteKind::kCode             ? "prompt"
                                                             : "question");
  set(choices_field, kind == SuiteKind::kSchema ? "context_options" : "choices");
  set(answer_field, by_likelihood                          ? "gold"
                    : kind == SuiteKind::kLanguageModeling ? "continuation"
                                                           : "answer");
  if (match == AnswerMatch::kAuto)
    match = kind == SuiteKind::kChatGeneration ? AnswerMatch::kMarked : AnswerMatch::kExact;
  if (max_tokens == 0) max_tokens = chats() ? 512 : 64;
  if (stop.empty() && kind == SuiteKind::kGeneration) stop = {"\n"};
}

std::vector<size_t> SuiteTask::examples_for(size_t index) const {
  if (shots == 0) return {};
  constexpr uint64_t kSeed = 1234;
  auto chosen = PythonRandom(kSeed + index).sample(problems.size() - 1, static_cast<size_t>(shots));
  for (size_t& other : chosen) other += other >= index;  // it is no example for itself
  return chosen;
}

std::string suite_place(const SuiteTask& task, size_t problem) {
  if (problem >= task.lines.size()) return fmt::format("task '{}', problem {}", task.name, problem + 1);
  return fmt::format("'{}', line {} (task '{}')", task.file, task.lines[problem], task.name);
}

namespace {

const nlohmann::json& suite_field(const SuiteTask& task, size_t problem, const std::string& field) {
  const auto& record = task.problems[problem];
  const auto found = record.find(field);
  if (found == record.end())
    throw data_error("{}: there is no field '{}'.", suite_place(task, problem), field);
  return *found;
}

std::string plain_text(const SuiteTask& task, size_t problem, const std::string& field,
                       const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  throw data_error("{}: '{}' is not text.", suite_place(task, problem), field);
}

}  // namespace

std::string suite_text(const SuiteTask& task, size_t problem, const std::string& field) {
  return plain_text(task, problem, field, suite_field(task, problem, field));
}

std::vector<std::string> suite_texts(const SuiteTask& task, size_t problem, const std::string& field) {
  const auto& list = suite_field(task, problem, field);
  if (!list.is_array() || list.empty())
    throw data_error("{}: '{}' is not a list of texts.", suite_place(task, problem), field);
  std::vector<std::string> texts;
  for (const auto& value : list) texts.push_back(plain_text(task, problem, field, value));
  return texts;
}

size_t suite_gold(const SuiteTask& task, size_t problem, size_t count) {
  const auto& value = suite_field(task, problem, task.answer_field);
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() >= static_cast<int64_t>(count))
    throw data_error("{}: '{}' must be the number of the right one, from 0 to {}.",
                     suite_place(task, problem), task.answer_field, count - 1);
  return value.get<size_t>();
}

}  // namespace tightloop
