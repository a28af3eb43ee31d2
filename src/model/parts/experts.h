#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_config.h"

namespace tightloop {

/// The weights of a layer of experts, each a SwiGLU feed-forward. E experts, X their inner width.
struct Experts {
  at::Tensor router_ED;
  at::Tensor gate_up;  // (E, 2X, D): rows of gate, then up
  at::Tensor down;     // (E, D, X)
};

/// Who visits whom. N tokens; P experts for each (config.experts_per_token).
struct Routing {
  at::Tensor scores_NE;   // softmax over all experts, fp32
  at::Tensor weights_NP;  // of the chosen ones, fp32; they sum to 1 where config.norm_topk
  at::Tensor chosen_NP;   // int64
  at::Tensor counts_E;    // int64: the choices that each expert got
  at::Tensor load_E;      // the same as a share of all choices, fp32; no gradient
};

/// x (..., D). Nothing is read back from the device.
Routing route(const at::Tensor& x, const Experts& experts, const ModelConfig& config);

/// The weighted sum of the chosen experts, of x's shape and dtype. No token is dropped. Tokens are sorted by
/// expert and run as grouped products, without waiting for the device; sizes and dtypes that those do not
/// take (rows must be multiples of 16 bytes, fp64) go to the plain twin.
at::Tensor run_experts(const at::Tensor& x, const Routing& routing, const Experts& experts);

/// The same, one expert after the other.
at::Tensor run_experts_plain(const at::Tensor& x, const Routing& routing, const Experts& experts);

/// What a layer adds to the loss so that experts share the work, coefficient included. "minimind":
/// E * sum(choices_e / N * mean score_e). "simple": sum((load_e - 1/E)^2), whose gradient flows through the
/// mean scores, since a count has none.
at::Tensor balance_loss(const Routing& routing, const ModelConfig& config);

}  // namespace tightloop
