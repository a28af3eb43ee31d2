#include "infer/calculator_calls.h"

#include "infer/calculator.h"

namespace tightloop {

CalculatorCalls::CalculatorCalls(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const auto call = tokenizer.token_id("<|python_start|>"), call_end = tokenizer.token_id("<|python_end|>"),
             result = tokenizer.token_id("<|output_start|>"),
             result_end = tokenizer.token_id("<|output_end|>");
  if (call && call_end && result && result_end) tokens_ = {*call, *call_end, *result, *result_end};
}

std::vector<int32_t> CalculatorCalls::after(Progress& progress, int32_t id) const {
  if (!tokens_) return {};
  if (id == tokens_->call) {
    progress = {.open = true};
    return {};
  }
  if (!progress.open) return {};
  if (id != tokens_->call_end) {
    progress.expression.push_back(id);
    return {};
  }
  progress.open = false;
  const auto result = calculate(tokenizer_.decode(progress.expression));
  if (!result) return {};
  std::vector<int32_t> forced{tokens_->result};
  tokenizer_.encode(*result, forced, SpecialText::kText);
  forced.push_back(tokens_->result_end);
  return forced;
}

std::vector<CalculatorCalls::Part> CalculatorCalls::parts(std::span<const int32_t> ids) const {
  std::vector<Part> parts;
  bool begins = true;
  const auto begin = [&](Part::Kind kind) {
    parts.push_back({kind});
    begins = false;
  };
  for (const int32_t id : ids) {
    if (tokens_ && id == tokens_->call) {
      begin(Part::Kind::kCall);
    } else if (tokens_ && id == tokens_->result) {
      begin(Part::Kind::kResult);
    } else if (tokens_ && (id == tokens_->call_end || id == tokens_->result_end)) {
      begins = true;
    } else {
      if (begins) begin(Part::Kind::kText);
      parts.back().ids.push_back(id);
    }
  }
  return parts;
}

}  // namespace tightloop
