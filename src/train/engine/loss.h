#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "data/batch/batch.h"
#include "data/batch/loader.h"
#include "data/store/documents.h"
#include "model/language_model.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/buffer_layout.h"

namespace tightloop {

/// A micro-batch on the device: int64 (B, T), targets with ops::kIgnoreIndex where nothing is to be learned.
struct DeviceBatch {
  at::Tensor inputs_BT, targets_BT;
  at::Tensor documents_BT{};  // int32, where documents are packed: attention does not look across
  at::Tensor sources_B{};     // int64: which source each row came from
  at::Tensor random{};        // int64 scalar: what dropout draws from
};

/// Lays a micro-batch out for its copy, in pinned memory for a GPU. The loader's buffers may be reused at
/// once.
Staged stage(const Batch& batch, bool pin);
/// The arrays of a staged micro-batch, wherever they are.
DeviceBatch device_batch(const std::vector<at::Tensor>& parts);
/// Both, with a copy in between; for evaluation.
DeviceBatch to_device(const Batch& batch, at::Device device);

/// Refuses token ids outside of the vocabulary on the host, before a GPU ends in an assert. `sources` are the
/// names for the message.
void check_ids(const Batch& batch, int64_t vocab_size, const std::vector<std::string>& sources = {});

/// How a loss is computed. The default is what evaluation wants: cross entropy and nothing else.
struct LossSetup {
  bool training = false;  // dropout is on, and experts' balance is measured
  double label_smoothing = 0, z_loss = 0;
  std::string fused_head = "auto";  // train.fused_head
  at::Tensor scale{};               // fp64 scalar on the device that multiplies the gradient
  bool correct = false;             // the tokens that were right are wanted
};

struct BatchLoss : ops::LossSum {
  at::Tensor balance{}, expert_loads_LE{};  // of a mixture of experts in training
  at::Tensor counted{}, sources_B{};        // where `correct` is wanted: (N) bool, and the rows' sources
};

/// Sum of the cross entropy over supervised tokens, and their count. Nothing is read back.
BatchLoss loss_of(LanguageModel& model, const DeviceBatch& batch, const LossSetup& setup = {});

/// Whether logits of so many bytes, or of `rows` positions, are made in chunks. "auto" does where they are
/// large.
bool chunks_head(int64_t logits_bytes, const std::string& fused_head);
bool chunks_head(const LanguageModel& model, int64_t rows, const std::string& fused_head);

struct HeldOutLoss {
  double sum = 0;
  int64_t tokens = 0;
  double mean() const { return tokens ? sum / static_cast<double>(tokens) : 0; }
};

/// One pass in order over the loader's batches, at most `limit` of them (0: all).
HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit);

}  // namespace tightloop
