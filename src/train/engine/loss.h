#pragma once

#include <ATen/core/Tensor.h>

#include <numbers>
#include <string>

#include "data/batch/loader.h"
#include "model/language_model.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/staging.h"
#include "train/train_config.h"

namespace tightloop {

/// How a loss is computed. The default is what evaluation wants: cross entropy and nothing else.
struct LossSetup {
  bool training = false;  // dropout is on, and experts' balance is measured
  double label_smoothing = 0, z_loss = 0;
  AutoSwitch fused_head = AutoSwitch::kAuto;
  bool fp8_head = false;  // where fp8 is on
  at::Tensor scale{};     // fp64 scalar on the device that multiplies the gradient
  bool correct = false;   // the tokens that were right are wanted
};

struct BatchLoss : ops::LossSum {
  at::Tensor balance{}, expert_loads_LE{};  // of a mixture of experts in training
  at::Tensor counted{}, sources_B{};        // where `correct` is wanted: (N) bool, and the rows' sources
};

/// Sum of the cross entropy over supervised tokens, and their count. Nothing is read back.
BatchLoss loss_of(LanguageModel& model, const DeviceBatch& batch, const LossSetup& setup = {});

/// Whether logits of so many bytes, or of `rows` positions, are made in chunks. "auto" does where they are
/// large.
bool chunks_head(int64_t logits_bytes, AutoSwitch fused_head);
bool chunks_head(const LanguageModel& model, int64_t rows, AutoSwitch fused_head);

/// A summed loss as bits for each byte of the text that it was made on. What special tokens (the ends of
/// documents) cost is counted, and they have no bytes.
inline double bits_per_byte(double loss_sum, double bytes) { return loss_sum / std::numbers::ln2 / bytes; }

struct HeldOutLoss {
  double sum = 0;
  int64_t tokens = 0, correct = 0;  // supervised ones, and those whose top prediction was right
  int64_t bytes = 0;                // of text in the tokens; 0: not known
  double bits_per_byte() const { return tightloop::bits_per_byte(sum, static_cast<double>(bytes)); }
  double mean() const { return tokens ? sum / static_cast<double>(tokens) : 0; }
  double accuracy() const { return tokens ? static_cast<double>(correct) / static_cast<double>(tokens) : 0; }
};

class HeldOutSums;

/// One pass in order over the loader's batches, at most the first `limit` of all processes together (0: all).
/// A loader that is one of several gives the sums of its own.
HeldOutSums held_out_sums(LanguageModel& model, Loader& loader, int64_t limit);
/// The same, added up.
HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit);

}  // namespace tightloop
