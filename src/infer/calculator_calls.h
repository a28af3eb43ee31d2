#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Calls of the calculator in what a model writes, as nanochat has them: behind
/// <|python_start|>expression<|python_end|> stands <|output_start|>result<|output_end|>, which the model is
/// given and does not write itself. Where there is no result (infer/calculator.h), nothing is put there.
class CalculatorCalls {
 public:
  /// The tokenizer must outlive it. Without all four tokens there are no calls.
  explicit CalculatorCalls(const Tokenizer& tokenizer);
  bool possible() const { return tokens_.has_value(); }

  /// One answer as far as it is written.
  struct Progress {
    bool open = false;  // within a call
    std::vector<int32_t> expression{};
  };
  /// Takes the next token of an answer; what must follow it, mostly nothing.
  std::vector<int32_t> after(Progress& progress, int32_t id) const;

  /// A part of an answer: its words, the expression of a call or the result.
  struct Part {
    enum class Kind : uint8_t { kText, kCall, kResult };
    Kind kind = Kind::kText;
    std::vector<int32_t> ids{};
  };
  /// An answer's parts in their order, without the tokens around them.
  std::vector<Part> parts(std::span<const int32_t> ids) const;

 private:
  struct Tokens {
    int32_t call, call_end, result, result_end;
  };
  const Tokenizer& tokenizer_;
  std::optional<Tokens> tokens_;
};

}  // namespace tightloop
