#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/families/seq2seq/seq2seq.h"

namespace tightloop {

/// How translations are looked for.
struct DecodeConfig {
  int64_t beam = 5;             // translations followed at once; 1: greedy
  double length_penalty = 0.6;  // scores are log probabilities / ((5 + length) / 6)^this
  int64_t nbest = 1;            // translations to give for each source, at most `beam` (samples: any number)
  int64_t extra_tokens = 50;    // a translation has at most so many tokens more than its source
  // Instead of the likeliest translations, random ones: `nbest` of them for each source.
  bool sample = false;
  double temperature = 1;
  int64_t top_k = 0;   // draw among this many likeliest tokens; 0: all
  double top_p = 1.0;  // draw among the likeliest that make up this probability
  int64_t seed = 1337;
  bool graphs = true;  // on a GPU a step is captured once for a batch, and replayed
};

/// The tokens of the target side that decoding must know.
struct TargetTokens {
  int64_t begin = 0, end = 0;
  int64_t vocab_size = 0;        // ids below this may be chosen: the tokenizer's; 0: all of the model's
  std::vector<int64_t> never{};  // these may not: padding, unknown
};

struct Translation {
  std::vector<int32_t> ids;    // without begin and end
  double score = 0;            // what ranks it: with the length penalty; of samples the log probability
  double log_probability = 0;  // of the ids and the end
};

/// Translations of some sources as one batch, the best first. `sources` hold their begin and end tokens.
///
/// A source is done when `beam` of its translations have ended and the best that is followed would be no
/// better than any of them: an end counts when it is among the `beam` likeliest continuations; the likeliest
/// others are followed on. At the last token that its length allows
/// only the end is possible. Neither what else is in the batch nor the padding matters, up to rounding.
/// Nothing is read back from the device but, every few tokens, which sources are done; those leave the batch
/// (where steps are replayed as graphs, when half of them are done).
/// Random draws depend on the seed, `numbers[i]` and the position alone.
std::vector<std::vector<Translation>> decode_batch(Seq2Seq& model,
                                                   std::span<const std::vector<int32_t>> sources,
                                                   const TargetTokens& tokens, const DecodeConfig& config,
                                                   std::span<const uint64_t> numbers = {});

/// The same over any number of sources: those of similar length together, at most `batch_tokens` source
/// cells times translations followed in a batch (0: as many as suit the device). An empty source (begin and
/// end alone) has one translation, the empty one. Source i has the number first_number + i. `done` is told
/// how many are finished.
std::vector<std::vector<Translation>> decode_all(Seq2Seq& model,
                                                 std::span<const std::vector<int32_t>> sources,
                                                 const TargetTokens& tokens, const DecodeConfig& config,
                                                 int64_t batch_tokens, uint64_t first_number = 0,
                                                 const std::function<void(size_t)>& done = {});

/// ((5 + length) / 6)^penalty, the divisor of Wu et al. 2016; `length` counts the end token.
double length_divisor(int64_t length, double penalty);

}  // namespace tightloop
