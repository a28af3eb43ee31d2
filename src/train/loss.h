#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "data/batch.h"
#include "data/documents.h"
#include "data/loader.h"
#include "model/language_model.h"
#include "ops/cross_entropy.h"

namespace tightloop {

/// A micro-batch on the device: int64 (B, T), targets with ops::kIgnoreIndex where nothing is to be learned.
struct DeviceBatch {
  at::Tensor inputs_BT, targets_BT;
  at::Tensor documents_BT{};  // int32, where documents are packed: attention does not look across
};

/// Starts the copy and returns; the loader's buffers may be reused at once. Without pinned memory a copy to a
/// GPU waits.
DeviceBatch to_device(const Batch& batch, at::Device device, bool pin_memory = true);

/// Sum of the cross entropy over supervised tokens, and their count. Nothing is read back.
ops::LossSum loss_of(LanguageModel& model, const DeviceBatch& batch);

struct HeldOutLoss {
  double sum = 0;
  int64_t tokens = 0;
  double mean() const { return tokens ? sum / static_cast<double>(tokens) : 0; }
};

/// One pass in order over the loader's batches, at most `limit` of them (0: all).
HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit);

}  // namespace tightloop
