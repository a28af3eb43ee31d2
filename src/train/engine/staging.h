#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/batch/batch.h"
#include "data/batch/pairs.h"
#include "train/engine/buffer_layout.h"

namespace tightloop {

/// One micro-batch on the host, ready for its copy to the device. Every kind of batch starts with the same
/// two arrays: StepNumbers (fp64), and a number for dropout to draw from (an int64 scalar).
struct Staged {
  static constexpr size_t kNumbers = 0, kRandom = 1, kFirst = 2;

  BufferLayout layout;
  at::Tensor buffer{};     // uint8, pinned where a GPU reads it
  int64_t index = 0;       // which micro-batch of the run it is, from 0
  int64_t tokens = 0;      // positions
  int64_t supervised = 0;  // of which are learned from
  int64_t bytes = 0;       // of text in those; 0: not known
  double epoch = 0;        // passes over the data when it ends

  /// With the two common arrays.
  Staged();
  /// Takes memory for all arrays that were added, pinned for a GPU; they are written through parts(). The
  /// common ones start as zeros.
  void allocate(bool pin);
  std::vector<at::Tensor> parts() const { return layout.parts(buffer); }
  /// Writes the common ones.
  void set(const std::vector<double>& numbers, int64_t random);
};

/// A micro-batch on the device: int64 (B, T), targets with ops::kIgnoreIndex where nothing is to be learned.
struct DeviceBatch {
  at::Tensor inputs_BT, targets_BT;
  at::Tensor documents_BT{};     // int32, where documents are packed: attention does not look across
  at::Tensor document_bounds{};  // int32, of the same documents: ops::DocumentBounds
  at::Tensor sources_B{};        // int64: which source each row came from
  at::Tensor random{};           // int64 scalar: what dropout draws from
};

/// Lays a micro-batch out for its copy, in pinned memory for a GPU. The loader's buffers may be reused at
/// once.
Staged stage(const Batch& batch, bool pin);
/// The arrays of a staged micro-batch, wherever they are.
DeviceBatch device_batch(const std::vector<at::Tensor>& parts);
/// Both, with a copy in between; for evaluation.
DeviceBatch to_device(const Batch& batch, at::Device device);

/// Where a row of a batch comes from, for messages.
using RowOrigin = std::function<std::string(int64_t row)>;

/// Refuses token ids outside of the vocabulary on the host, before a kernel reads beyond an embedding: a data
/// error that names the row.
void check_ids(const Batch& batch, int64_t vocab_size, const RowOrigin& origin = {});
void check_ids(const PairBatch& batch, int64_t source_vocab, int64_t target_vocab,
               const RowOrigin& origin = {});

/// A micro-batch of pairs on the device, int64; targets with ops::kIgnoreIndex where there is only padding.
struct DevicePairs {
  at::Tensor source_BS, source_lengths_B;
  at::Tensor inputs_BT, targets_BT;
  at::Tensor random{};  // int64 scalar: what dropout draws from
};

/// Lays a micro-batch out for its copy, filled up to `rows` rows with sentences of one token and nothing to
/// learn; in pinned memory for a GPU. The loader's buffers may be reused at once.
Staged stage(const PairBatch& batch, int64_t rows, bool pin);
/// The arrays of a staged micro-batch, wherever they are.
DevicePairs device_pairs(const std::vector<at::Tensor>& parts);
/// Both, with a copy in between; for evaluation.
DevicePairs to_device(const PairBatch& batch, at::Device device);

}  // namespace tightloop
