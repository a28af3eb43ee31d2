#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "data/batch/pairs.h"
#include "model/families/seq2seq/seq2seq.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/loss.h"
#include "train/engine/staging.h"
#include "train/train_config.h"

namespace tightloop {

struct PairLossSetup {
  bool training = false;  // dropout is on
  at::Tensor random{};    // decides what is dropped, where dropout is on
  double label_smoothing = 0;
  Smoothing smoothing = Smoothing::kUniform;
  int64_t pad_id = 0;  // kKullbackLeibler: what gets no weight
  AutoSwitch fused_head = AutoSwitch::kAuto;
  bool fp8_head = false;  // where fp8 is on
  at::Tensor scale{};     // fp64 scalar on the device that multiplies the gradient
  bool correct = false;   // the tokens that were right are wanted
};

/// The loss summed over the targets' tokens, and their count. Nothing is read back.
ops::LossSum pair_loss(Seq2Seq& model, const DevicePairs& batch, const PairLossSetup& setup = {});

/// One pass in order over the loader's batches; see loss.h.
HeldOutSums held_out_sums(Seq2Seq& model, PairLoader& loader);
HeldOutLoss held_out_loss(Seq2Seq& model, PairLoader& loader);

/// The loss of logits = hidden weight^T; hidden (N, D), weight (V, D), targets int64 (N). With
/// kKullbackLeibler and smoothing e, target y and padding p it is the divergence of softmax(logits) from
/// q_y = 1 - e, q_p = 0, q_j = e / (V - 2), as the Annotated Transformer has it.
ops::LossSum smoothed_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const PairLossSetup& setup);

}  // namespace tightloop
