#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "model/families/seq2seq/seq2seq.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/staging.h"

namespace tightloop {

/// Where the share of the target's weight goes that label smoothing takes from it.
enum class Smoothing {
  kUniform,          // evenly to the whole vocabulary, the target too
  kKullbackLeibler,  // evenly to all but the target and the padding, measured as a divergence
};

struct PairLossSetup {
  bool training = false;  // dropout is on
  at::Tensor random{};    // decides what is dropped, where dropout is on
  double label_smoothing = 0;
  Smoothing smoothing = Smoothing::kUniform;
  int64_t pad_id = 0;               // kKullbackLeibler: what gets no weight
  std::string fused_head = "auto";  // train.fused_head
  at::Tensor scale{};               // fp64 scalar on the device that multiplies the gradient
  bool correct = false;             // the tokens that were right are wanted
};

/// The loss summed over the targets' tokens, and their count. Nothing is read back.
ops::LossSum pair_loss(Seq2Seq& model, const DevicePairs& batch, const PairLossSetup& setup = {});

/// The loss of logits = hidden weight^T; hidden (N, D), weight (V, D), targets int64 (N). With
/// kKullbackLeibler and smoothing e, target y and padding p it is the divergence of softmax(logits) from
/// q_y = 1 - e, q_p = 0, q_j = e / (V - 2), as the Annotated Transformer has it.
ops::LossSum smoothed_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const PairLossSetup& setup);

}  // namespace tightloop
