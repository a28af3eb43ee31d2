#include "infer/generate.h"
#include "infer/calculator_calls.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/interrupt.h"

namespace tightloop {

namespace {

constexpr size_t kReadAtOnce = 2048;  // tokens of a prompt: memory, and the time until a signal is noticed

// The rows of a batch that are still being continued. seen[i] is everything read and made for row i.
class Rows {
 public:
  Rows(std::span<const Prompt> prompts, const ModelConfig& config) : prompts_(prompts) {
    const int64_t longest = longest_prompt(config);
    for (size_t row = 0; row < prompts.size(); ++row) {
      const auto& ids = prompts[row].ids;
      if (ids.empty()) throw usage_error("a prompt must have at least one token.");
      if (static_cast<int64_t>(ids.size()) > longest) {
        throw usage_error(
            "a prompt of {} tokens is too long for the model's context of {}; at most {} are read. "
            "Shorten it.",
            ids.size(), config.context, longest);
      }
      for (const int32_t id : ids) {
        if (id < 0 || id >= config.vocab_size) {
          throw usage_error("there is no token {}: the model's ids go from 0 to {}.", id,
                            config.vocab_size - 1);
        }
      }
      rows_.push_back(row);
      seen_.push_back(ids);
    }
  }

  size_t size() const { return rows_.size(); }
  size_t row(size_t i) const { return rows_[i]; }
  std::vector<int32_t>& seen(size_t i) { return seen_[i]; }
  std::span<const std::vector<int32_t>> seen() const { return seen_; }
  const Prompt& prompt(size_t i) const { return prompts_[rows_[i]]; }
  size_t shortest() const { return std::ranges::min_element(seen_, {}, &std::vector<int32_t>::size)->size(); }

  /// The ids at [begin, end) of every row.
  at::Tensor ids(size_t begin, size_t end, at::Device device) const {
    const auto B = static_cast<int64_t>(size()), T = static_cast<int64_t>(end - begin);
    auto ids = at::empty({B, T}, at::kLong);
    auto* out = ids.mutable_data_ptr<int64_t>();
    for (const auto& row : seen_) out = std::copy(row.begin() + begin, row.begin() + end, out);
    return ids.to(device);
  }

  /// Keeps only these.
  void keep(const std::vector<int64_t>& kept) {
    for (size_t i = 0; i < kept.size(); ++i) {
      rows_[i] = rows_[kept[i]];
      if (static_cast<int64_t>(i) != kept[i]) seen_[i] = std::move(seen_[kept[i]]);
    }
    rows_.resize(kept.size()), seen_.resize(kept.size());
  }

 private:
  std::span<const Prompt> prompts_;
  std::vector<size_t> rows_;
  std::vector<std::vector<int32_t>> seen_;
};

}  // namespace

std::vector<Answer> generate(LanguageModel& model, std::span<const Prompt> prompts,
                             const GenerateOptions& options) {
  std::vector<Answer> answers(prompts.size());
  if (prompts.empty()) return answers;
  const auto& sampling = options.sampling;
  c10::InferenceMode inference;
  Rows rows(prompts, model.config());
  KvCache own(model.config().layers);
  KvCache& cache = options.cache ? *options.cache : own;
  const auto longest = static_cast<size_t>(longest_sequence(model.config()));
  auto read = static_cast<size_t>(cache.length());  // tokens of every row that the model has read
  std::vector<CalculatorCalls::Progress> calls(prompts.size());

  while (rows.size() > 0) {
    const size_t upto = std::min(rows.shortest(), read + kReadAtOnce);
    const auto hidden = model.forward(rows.ids(read, upto, model.device()), {.cache = &cache}).hidden_BTD;
    if (cache.length() != static_cast<int64_t>(upto))
      throw usage_error(
          "model.family {} reads {} tokens and leaves {} in the cache: a forward pass with Pass::cache adds "
          "its "
          "tokens' keys and values to it (AttentionScope does), or later ones are computed from wrong "
          "inputs.",
          model.config().family, upto, cache.length());
    read = upto;
    // Rows that have not reached the end of their prompt, or of a calculator's result, have their next token.
    std::vector<size_t> due;
    std::vector<SampleRow> chosen_by;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows.seen(i).size() != read) continue;
      due.push_back(i);
      chosen_by.push_back({.sampling = &sampling,
                           .seen = rows.seen(i),
                           .sample = rows.prompt(i).sample,
                           .position = answers[rows.row(i)].ids.size(),
                           .vocab_size = options.vocab_size});
    }
    std::vector<bool> ended(rows.size());
    if (!due.empty()) {
      auto last = hidden.select(1, hidden.size(1) - 1);
      if (due.size() < rows.size())
        last =
            last.index_select(0, at::tensor(std::vector<int64_t>(due.begin(), due.end())).to(model.device()));
      const auto made = sample(model.logits(last), chosen_by);
      for (size_t j = 0; j < due.size(); ++j) {
        const size_t i = due[j], row = rows.row(i);
        Answer& answer = answers[row];
        const auto end = [&](AnswerEnd how) { answer.end = how, ended[i] = true; };
        if (std::ranges::find(options.stop_tokens, made[j]) != options.stop_tokens.end()) {
          end(AnswerEnd::kStopped);
          continue;
        }
        std::vector<int32_t> added{made[j]};
        if (options.calculator)
          std::ranges::copy(options.calculator->after(calls[row], made[j]), std::back_inserter(added));
        for (const int32_t id : added) {
          if (ended[i]) break;
          answer.ids.push_back(id);
          rows.seen(i).push_back(id);
          if (options.on_token && !options.on_token(row, id)) {
            end(AnswerEnd::kStopped);
          } else if (static_cast<int64_t>(answer.ids.size()) >= sampling.max_tokens) {
            end(AnswerEnd::kLength);
          } else if (rows.seen(i).size() >= longest) {
            end(AnswerEnd::kContextFull);
          }
        }
      }
    }
    if (interrupted()) {
      for (size_t i = 0; i < rows.size(); ++i)
        if (!ended[i]) answers[rows.row(i)].end = AnswerEnd::kInterrupted;
      break;
    }
    std::vector<int64_t> kept;
    for (size_t i = 0; i < rows.size(); ++i)
      if (!ended[i]) kept.push_back(static_cast<int64_t>(i));
    if (kept.size() < rows.size()) {
      if (!kept.empty()) cache.select_rows(at::tensor(kept).to(model.device()));
      rows.keep(kept);
    }
  }
  return answers;
}

std::vector<Answer> generate_all(LanguageModel& model, std::span<const Prompt> prompts,
                                 const GenerateOptions& options, size_t rows,
                                 const std::function<void(size_t)>& done) {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return prompts[i].ids.size(); });
  std::vector<Answer> answers(prompts.size());
  for (size_t first = 0; first < order.size() && !interrupted(); first += rows) {
    const std::span<const size_t> chosen(&order[first], std::min(rows, order.size() - first));
    std::vector<Prompt> batch;
    for (const size_t i : chosen) batch.push_back(prompts[i]);
    GenerateOptions inner = options;
    if (options.on_token)
      inner.on_token = [&](size_t row, int32_t id) { return options.on_token(chosen[row], id); };
    auto made = generate(model, batch, inner);
    for (size_t i = 0; i < chosen.size(); ++i) answers[chosen[i]] = std::move(made[i]);
    if (done) done(first + chosen.size());
  }
  return answers;
}

}  // namespace tightloop
