#include "infer/exact_match.h"

#include <algorithm>

#include "infer/generate.h"

namespace tightloop {

namespace {

constexpr size_t kRows = 256;

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

}  // namespace

ExactMatch exact_match(LanguageModel& model, const Tokenizer& tokenizer,
                       const std::vector<Question>& questions, int examples_per_task) {
  // Prompts of equal length share a batch, so that none needs padding.
  std::map<size_t, std::vector<size_t>> by_length;
  std::vector<std::vector<int32_t>> prompts;
  size_t longest_answer = 0;
  for (const auto& question : questions) {
    prompts.push_back(tokenizer.encode(question.prompt));
    by_length[prompts.back().size()].push_back(prompts.size() - 1);
    longest_answer = std::max(longest_answer, tokenizer.encode(" " + question.answer).size());
  }
  SamplingConfig greedy;
  greedy.temperature = 0;
  greedy.max_tokens = static_cast<int64_t>(longest_answer) + 2;

  std::vector<std::string> answers(questions.size());
  for (const auto& [length, indices] : by_length) {
    for (size_t first = 0; first < indices.size(); first += kRows) {
      const size_t rows = std::min(kRows, indices.size() - first);
      std::vector<std::vector<int32_t>> batch;
      for (size_t i = 0; i < rows; ++i) batch.push_back(prompts[indices[first + i]]);
      const auto made = generate(model, batch, tokenizer.end_of_text(), greedy);
      for (size_t i = 0; i < rows; ++i) answers[indices[first + i]] = trimmed(tokenizer.decode(made[i]));
    }
  }
  ExactMatch result;
  for (size_t i = 0; i < questions.size(); ++i) {
    auto& score = result.by_task[questions[i].task];
    if (score.asked < examples_per_task) result.examples.push_back({questions[i], answers[i]});
    const bool right = answers[i] == questions[i].answer;
    ++score.asked, ++result.all.asked;
    score.right += right, result.all.right += right;
  }
  return result;
}

}  // namespace tightloop
