#include "infer/exam.h"
#include "infer/calculator_calls.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "infer/chat_session.h"
#include "infer/generate.h"
#include "infer/thoughts.h"
#include "infer/token_scores.h"

namespace tightloop {

namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// One possible answer to one question.
struct Candidate {
  size_t question, choice;
  double score = 0;
};

// The mean log probability of each candidate's tokens after its prompt. Rows of a batch are filled up behind
// the candidate, where nothing looks back from.
void score(LanguageModel& model, const std::vector<ExamQuestion>& questions, std::span<Candidate> batch) {
  int64_t length = 0;
  const auto prompt = [&](const Candidate& c) -> const auto& { return questions[c.question].prompt; };
  const auto choice = [&](const Candidate& c) -> const auto& {
    return questions[c.question].choices[c.choice];
  };
  for (const auto& c : batch)
    length = std::max(length, static_cast<int64_t>(prompt(c).size() + choice(c).size()) - 1);
  const auto B = static_cast<int64_t>(batch.size());
  auto inputs = at::zeros({B, length}, at::kLong), targets = at::zeros({B, length}, at::kLong);
  for (int64_t row = 0; row < B; ++row) {
    std::vector<int64_t> ids(prompt(batch[row]).begin(), prompt(batch[row]).end());
    ids.insert(ids.end(), choice(batch[row]).begin(), choice(batch[row]).end());
    std::copy(ids.begin(), ids.end() - 1, inputs.mutable_data_ptr<int64_t>() + row * length);
    std::copy(ids.begin() + 1, ids.end(), targets.mutable_data_ptr<int64_t>() + row * length);
  }
  const auto losses = score_tokens(model, inputs, targets).loss;
  for (int64_t row = 0; row < B; ++row) {
    const auto first = static_cast<int64_t>(prompt(batch[row]).size()) - 1;
    const auto count = static_cast<int64_t>(choice(batch[row]).size());
    batch[row].score = -losses[row].narrow(0, first, count).mean().item<double>();
  }
}

}  // namespace

std::string final_answer(std::string_view text) {
  const auto mark = text.rfind("####");
  if (mark == text.npos) return std::string(trimmed(text));
  std::string answer(trimmed(text.substr(mark + 4)));
  answer = answer.substr(0, answer.find('\n'));
  std::erase(answer, ',');
  if (answer.starts_with('$')) answer.erase(0, 1);
  if (answer.ends_with('.')) answer.pop_back();
  return std::string(trimmed(answer));
}

ExamOptions greedy_exam(const std::vector<ExamQuestion>& questions, const Tokenizer& tokenizer) {
  ExamOptions options;
  size_t longest = 0;
  for (const auto& question : questions)
    longest = std::max(longest, tokenizer.encode(" " + question.expected).size());
  options.sampling.temperature = 0;
  const bool thinks = std::ranges::any_of(questions, &ExamQuestion::thinks);
  options.sampling.max_tokens = static_cast<int64_t>(longest) + 2 + (thinks ? kThoughtTokens : 0);
  options.stop_tokens = stop_tokens(tokenizer, nullptr);
  return options;
}

ExamResult take_exam(LanguageModel& model, const Tokenizer& tokenizer,
                     const std::vector<ExamQuestion>& questions, const ExamOptions& options) {
  std::vector<Candidate> candidates;
  std::vector<Prompt> prompts;
  std::vector<size_t> asked;  // which question each prompt belongs to
  const int64_t longest = longest_prompt(model.config());
  for (size_t i = 0; i < questions.size(); ++i) {
    if (std::ssize(questions[i].prompt) > longest)
      throw data_error("question {} has {} tokens; the model reads {} at most.", i + 1,
                       questions[i].prompt.size(), longest);
    for (size_t choice = 0; choice < questions[i].choices.size(); ++choice) candidates.push_back({i, choice});
    if (!questions[i].choices.empty()) continue;
    for (int64_t sample = 0; sample < options.samples; ++sample) {
      prompts.push_back({questions[i].prompt, static_cast<uint64_t>(sample)});
      asked.push_back(i);
    }
  }
  const size_t total = candidates.size() + prompts.size();
  ProgressLine line("Answers", total, ProgressLine::Unit::kCount);
  const auto progress = [&](size_t done) {
    line.set(done);
    if (options.progress) options.progress(done, total);
  };

  std::vector<std::vector<std::string>> answers(questions.size());
  std::vector<size_t> best(questions.size());
  const auto length = [&](const Candidate& c) { return questions[c.question].prompt.size(); };
  std::ranges::stable_sort(candidates, {}, length);
  std::vector<double> best_score(questions.size(), -std::numeric_limits<double>::infinity());
  for (size_t first = 0; first < candidates.size(); first += options.rows) {
    throw_if_interrupted();
    const std::span batch(&candidates[first], std::min(options.rows, candidates.size() - first));
    score(model, questions, batch);
    for (const Candidate& c : batch) {
      if (c.score > best_score[c.question]) best_score[c.question] = c.score, best[c.question] = c.choice;
    }
    progress(first + batch.size());
  }

  GenerateOptions generation;
  generation.sampling = options.sampling;
  generation.stop_tokens = options.stop_tokens;
  generation.vocab_size = tokenizer.vocab_size();
  generation.calculator = options.calculator;
  const auto made = generate(model, prompts, generation, options.rows,
                             [&](size_t done) { progress(candidates.size() + done); });
  throw_if_interrupted();  // half of the answers would be wrong ones
  for (size_t i = 0; i < made.size(); ++i) answers[asked[i]].push_back(tokenizer.decode(made[i].ids));

  ExamResult result;
  result.samples = options.samples;
  for (size_t i = 0; i < questions.size(); ++i) {
    const ExamQuestion& question = questions[i];
    const bool choice = !question.choices.empty();
    if (choice) answers[i] = {tokenizer.decode(question.choices[best[i]])};
    int64_t right = 0;
    const bool opened = opens_thinking(tokenizer, question.prompt);
    const std::string expected = final_answer(without_thoughts(question.expected, opened));
    for (const auto& answer : answers[i])
      right +=
          choice ? best[i] == question.right : final_answer(without_thoughts(answer, opened)) == expected;
    auto& task = result.by_task[question.task];
    if (task.asked < options.examples_per_task) {
      result.examples.push_back({question.shown, question.expected,
                                 std::string(trimmed(answers[i].empty() ? "" : answers[i][0])), right > 0});
    }
    for (auto* score : {&task, &result.all}) {
      ++score->asked;
      score->passed += right > 0;
      if (!answers[i].empty())
        score->right += static_cast<double>(right) / static_cast<double>(answers[i].size());
    }
  }
  return result;
}

}  // namespace tightloop
