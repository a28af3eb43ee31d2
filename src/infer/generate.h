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
  int64_t shared_tokens = 0;  // of the prompt, which the decoder had read before
};

struct GenerateOptions {
  SamplingConfig sampling;
  std::vector<int32_t> stop_tokens;  // any of these ends an answer
  int64_t vocab_size = 0;  // ids below this may be chosen: the tokenizer's, where the model has more; 0: all
  /// Sees every token as it is made: (prompt, id). False ends that answer; the token still belongs to it.
  std::function<bool(size_t, int32_t)> on_token;
  /// Answers the calls in what is written; its tokens count like the model's own. Null: nobody does.
  const CalculatorCalls* calculator = nullptr;
  bool graphs = true;  // DecoderConfig::graphs; without, memory of a model in training is left alone
};

/// Continues all prompts by a decoder of its own, at most `rows` at once (0: all). `done` is told how many
/// are answered. Once Ctrl-C was pressed, what is not answered ends as kInterrupted.
std::vector<Answer> generate(LanguageModel& model, std::span<const Prompt> prompts,
                             const GenerateOptions& options, size_t rows = 0,
                             const std::function<void(size_t)>& done = {});

/// The same by a decoder that nobody else advances. What it has read of earlier prompts is not read again.
std::vector<Answer> generate(Decoder& decoder, std::span<const Prompt> prompts,
                             const GenerateOptions& options, const std::function<void(size_t)>& done = {});

/// A decoder's settings for `rows` texts at once, of prompts of these lengths.
DecoderConfig decoder_for(const ModelConfig& model, std::span<const Prompt> prompts, int64_t max_tokens,
                          size_t rows);

}  // namespace tightloop
