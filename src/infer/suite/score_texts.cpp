#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "infer/generate.h"
#include "infer/suite/suite_runs.h"
#include "infer/token_scores.h"

namespace tightloop {

namespace {

/// What a model makes of one text.
struct TextScore {
  double loss = 0;         // mean over its scored tokens; NaN where there is none
  bool predicted = false;  // every one of them was the likeliest
};

/// Rows of ids filled up behind their ends, where nothing looks back from.
at::Tensor padded(std::span<const std::vector<int32_t>* const> rows, int64_t fill) {
  size_t length = 0;
  for (const auto* row : rows) length = std::max(length, row->size());
  auto ids = at::full({std::ssize(rows), static_cast<int64_t>(length)}, fill, at::kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  for (const auto* row : rows) {
    std::ranges::copy(*row, out);
    out += length;
  }
  return ids;
}

std::vector<TextScore> score_batch(LanguageModel& model, std::span<const ScoredText* const> batch) {
  std::vector<const std::vector<int32_t>*> rows;
  for (const auto* text : batch) rows.push_back(&text->ids);
  const auto ids = padded(rows, 0);
  const int64_t T = ids.size(1) - 1;
  const auto targets = ids.narrow(1, 1, T);
  const auto scores = score_tokens(model, ids.narrow(1, 0, T), targets);
  std::vector<TextScore> out;
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t first = std::max<int64_t>(batch[i]->start, 1) - 1, count = batch[i]->end - 1 - first;
    const auto part = [&](const at::Tensor& of) {
      return of[static_cast<int64_t>(i)].narrow(0, first, count);
    };
    out.push_back({part(scores.loss).mean().item<double>(), part(scores.rank).eq(1).all().item<bool>()});
  }
  return out;
}

/// Calls take(batch) for texts of similar length together, `rows` at a time.
template <class Item, class Take>
void in_batches(const std::vector<Item>& items, size_t rows, const SuiteTask& task, bool progress,
                const Take& take) {
  std::vector<const Item*> order;
  for (const Item& item : items) order.push_back(&item);
  std::ranges::stable_sort(order, {}, [](const Item* item) { return item->length(); });
  std::optional<ProgressLine> line;
  if (progress) line.emplace(task.name, items.size(), ProgressLine::Unit::kCount);
  for (size_t first = 0; first < order.size(); first += rows) {
    throw_if_interrupted();
    const std::span<const Item* const> batch(&order[first], std::min(rows, order.size() - first));
    take(batch);
    if (line) line->add(batch.size());
  }
}

double choice_loss(const SuiteTask& task, const ScoredText& text, double mean) {
  const double sum = mean * static_cast<double>(text.end - text.start);
  switch (task.normalize) {
    case ChoiceNorm::kTokens:
      return mean;
    case ChoiceNorm::kBytes:
      return sum / static_cast<double>(std::max<size_t>(text.bytes, 1));
    case ChoiceNorm::kNone:
      return sum;
  }
  return mean;
}

/// As nanochat has it, which then takes the first choice, or never this one.
void warn_of_unscored(const SuiteTask& task, const std::vector<ScoredText>& texts) {
  const auto unscored =
      std::ranges::find_if(texts, [](const ScoredText& text) { return text.start >= text.end; });
  if (unscored == texts.end()) return;
  log::warn(
      "{}: other choices begin with the whole of choice {}, so that nothing of it is scored, and the result "
      "tells nothing. With normalize: bytes or none every choice is scored in full.",
      suite_place(task, unscored->problem), unscored->choice);
}

}  // namespace

SuiteTaskResult score_texts(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options) {
  const int64_t longest = longest_sequence(model.model.config());
  const size_t problems = task.problems.size();
  SuiteTaskResult result;
  result.right.resize(problems), result.losses.resize(problems);
  std::vector<ScoredText> texts;
  for (size_t problem = 0; problem < problems; ++problem) {
    auto more = scored_texts(task, problem, model.tokenizer, longest);
    result.losses[problem].resize(more.size());
    std::ranges::move(more, std::back_inserter(texts));
  }
  warn_of_unscored(task, texts);
  in_batches(texts, options.rows, task, options.progress, [&](std::span<const ScoredText* const> batch) {
    const auto scores = score_batch(model.model, batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      const ScoredText& text = *batch[i];
      result.losses[text.problem][text.choice] = choice_loss(task, text, scores[i].loss);
      if (task.kind == SuiteKind::kLanguageModeling) result.right[text.problem] = scores[i].predicted;
    }
  });
  if (task.kind == SuiteKind::kLanguageModeling) return result;
  for (size_t problem = 0; problem < problems; ++problem) {
    // As Python's min(): the first of equal ones; what is no number is smaller than nothing.
    const auto& losses = result.losses[problem];
    size_t best = 0;
    for (size_t i = 1; i < losses.size(); ++i)
      if (losses[i] < losses[best]) best = i;
    result.right[problem] = best == suite_gold(task, problem, losses.size());
  }
  return result;
}

SuiteTaskResult choose_labels(const SuiteTask& task, const SuiteModel& model, const SuiteOptions& options) {
  struct Asked : ChatChoice {
    size_t problem = 0;
    size_t length() const { return prompt.size(); }
  };
  std::vector<Asked> asked;
  for (size_t problem = 0; problem < task.problems.size(); ++problem) {
    asked.push_back(
        {chat_choice(task, problem, model.tokenizer, *model.chat, model.template_variables), problem});
    demand_room(task, problem, asked.back().length(), longest_sequence(model.model.config()));
  }
  SuiteTaskResult result;
  result.right.resize(asked.size()), result.answers.resize(asked.size());
  in_batches(asked, options.rows, task, options.progress, [&](std::span<const Asked* const> batch) {
    c10::InferenceMode inference;
    std::vector<const std::vector<int32_t>*> rows;
    std::vector<int64_t> number, last;
    for (const Asked* one : batch) {
      number.push_back(std::ssize(rows));
      last.push_back(std::ssize(one->prompt) - 1);
      rows.push_back(&one->prompt);
    }
    const auto device = model.model.device();
    const auto hidden = model.model.forward(padded(rows, 0).to(device)).hidden_BTD;
    const auto ends = hidden.index({at::tensor(number).to(device), at::tensor(last).to(device)});
    const auto logits = model.model.logits(ends).to(at::kCPU, at::kFloat);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto* row = logits.const_data_ptr<float>() + static_cast<int64_t>(i) * logits.size(1);
      const auto& labels = batch[i]->labels;
      size_t best = 0;
      for (size_t j = 1; j < labels.size(); ++j)
        if (row[labels[j]] > row[labels[best]]) best = j;
      result.right[batch[i]->problem] = best == batch[i]->right;
      result.answers[batch[i]->problem] = model.tokenizer.decode(std::span(&labels[best], 1));
    }
  });
  return result;
}

}  // namespace tightloop
