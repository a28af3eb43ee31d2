#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/decoder.h"
#include "model/language_model.h"

namespace tightloop {

/// A text to continue. Random numbers depend on the seed, `sample` and the position in the answer alone, so
/// that a prompt's answer does not depend on what stands beside it in a batch.
struct Prompt {
  std::vector<int32_t> ids;
  uint64_t sample = 0;  // which of several answers to the same prompt
};

/// What was made for a prompt: neither the prompt nor the stop token.
struct Answer {
  std::vector<int32_t> ids;
  AnswerEnd end = AnswerEnd::kLength;
};

struct GenerateOptions {
  SamplingConfig sampling;
  std::vector<int32_t> stop_tokens;  // any of these ends an answer
  int64_t vocab_size = 0;  // ids below this may be chosen: the tokenizer's, where the model has more; 0: all
  /// Sees every token as it is made: (prompt, id). False ends that answer; the token still belongs to it.
  std::function<bool(size_t, int32_t)> on_token;
  /// Answers the calls in what is written; its tokens count like the model's own. Null: nobody does.
  const CalculatorCalls* calculator = nullptr;
  /// For one prompt alone: holds the prompt's first length() tokens already (fewer than all), and afterwards
  /// those of the prompt and the answer that were read. Without one, generation makes its own.
  KvCache* cache = nullptr;
};

/// Continues all prompts as one batch, whatever their lengths: what all have is read at once; from there on
/// rows with a longer prompt are fed their own tokens, one a step, until they reach its end. Put prompts of
/// similar length together. Rows that have ended leave the batch.
std::vector<Answer> generate(LanguageModel& model, std::span<const Prompt> prompts,
                             const GenerateOptions& options);

/// The same over any number of prompts, in batches of at most `rows`, those of similar length together.
/// `done` is told how many prompts are answered.
std::vector<Answer> generate_all(LanguageModel& model, std::span<const Prompt> prompts,
                                 const GenerateOptions& options, size_t rows,
                                 const std::function<void(size_t)>& done = {});

}  // namespace tightloop
