#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "infer/decode/chosen_tokens.h"
#include "infer/decode/sequence.h"

namespace tightloop {

/// The next tokens of a sequence that a pass reads: [read, read + tokens).
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t tokens = 0;

  /// Whether it is read to its end, and has its next token chosen.
  bool due() const { return tokens == sequence->unread(); }
};

/// What a pass gives for its chunks that are due, in their order.
struct Reading {
  at::Tensor logits_BV{};                  // undefined where there are none; until the next pass
  std::shared_ptr<ChosenTokens> chosen{};  // their next tokens, where the reader has chosen them
};

/// Lets the model read tokens of many sequences, and keeps their keys and values. A sequence is opened, has
/// room made and is read any number of times, and is closed.
class SequenceReader {
 public:
  virtual ~SequenceReader() = default;

  /// Finds what of the sequence was read before (all but its last token at most): sets `read`.
  virtual void open(Sequence& sequence) = 0;
  /// Room for the sequence's first `tokens`; false where there is none left.
  virtual bool reserve(Sequence& sequence, int64_t tokens) = 0;
  /// A sequence stands here once at most. Chunks may begin with a token that is under way where
  /// passes_ahead() is above 0.
  virtual Reading read(std::span<const Chunk> chunks) = 0;
  /// Gives the room back. What was read may be found again until the room is needed.
  virtual void close(Sequence& sequence) = 0;
  /// Forgets what may be found again, after a pass that failed.
  virtual void forget() = 0;
  /// How many passes may be started before the tokens of the first are looked at.
  virtual int64_t passes_ahead() const = 0;
  /// Passes that were replayed as graphs.
  virtual int64_t replayed() const { return 0; }
  /// Room in tokens, and how much of it open sequences have.
  virtual int64_t capacity() const = 0;
  virtual int64_t used() const = 0;
};

/// All chunks in one pass, over pages: for families that read Pass::paged.
std::unique_ptr<SequenceReader> make_paged_reader(LanguageModel& model, const DecoderConfig& config);
/// A KvCache for each sequence, and a pass for each chunk: for the others.
std::unique_ptr<SequenceReader> make_cache_reader(LanguageModel& model, const DecoderConfig& config);

}  // namespace tightloop
