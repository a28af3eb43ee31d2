#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "infer/decode/sequence.h"

namespace tightloop {

/// The next tokens of a sequence that a pass reads: [read, read + tokens).
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t tokens = 0;
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
  /// The states (chunks, D) of each chunk's last token. A sequence stands here once at most.
  virtual at::Tensor read(std::span<const Chunk> chunks) = 0;
  /// Gives the room back. What was read may be found again until the room is needed.
  virtual void close(Sequence& sequence) = 0;
  /// Forgets what may be found again, after a pass that failed.
  virtual void forget() = 0;
  /// Room in tokens, and how much of it open sequences have.
  virtual int64_t capacity() const = 0;
  virtual int64_t used() const = 0;
};

/// A KvCache for each sequence, and a pass for each chunk: for families that do not read Pass::paged.
std::unique_ptr<SequenceReader> make_cache_reader(LanguageModel& model, const DecoderConfig& config);

}  // namespace tightloop
