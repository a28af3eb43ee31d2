#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// Rows of the choices of N tokens, P each, sorted by expert: M = N P. Both int64.
struct ExpertOrder {
  at::Tensor order_M;   // row -> choice n P + p
  at::Tensor place_NP;  // choice -> row
};

/// Of chosen (N, P), experts' numbers below `experts`; choices of an expert stay in their order.
ExpertOrder expert_order(const at::Tensor& chosen_NP, int64_t experts);

/// x (N, D) -> (M, D), a token's row for each of its choices.
at::Tensor spread_rows(const at::Tensor& x_ND, const ExpertOrder& order);

/// Rows (M, D) of all choices -> (N, D), their weighted sum in fp32, rounded once; weights (N, P) in fp32.
at::Tensor gather_rows(const at::Tensor& rows_MD, const at::Tensor& weights_NP, const ExpertOrder& order);

/// The same in ordinary ATen.
at::Tensor spread_rows_plain(const at::Tensor& x_ND, const ExpertOrder& order);
at::Tensor gather_rows_plain(const at::Tensor& rows_MD, const at::Tensor& weights_NP,
                             const ExpertOrder& order);

/// Sets to 0 what `matrices` (E, ., .) has of experts without rows; those of expert e end before ends[e],
/// int32.
void clear_idle_experts(const at::Tensor& matrices, const at::Tensor& ends_E);

}  // namespace tightloop::ops
