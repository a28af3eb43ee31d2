#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// The tokens of a batch in the order of their ids, equal ones in the order of their positions: int32 ids and
/// int64 positions in the flattened batch. One order serves every table that the same ids are looked up in.
struct TokenOrder {
  at::Tensor ids, positions;
};

/// The order of ids (any shape, int64) for the gradient of a table `weight`. Undefined where no kernel would
/// read it: without gradients, or where `weight` (V, D) has none that ours could sum up.
TokenOrder token_order(const at::Tensor& weight, const at::Tensor& ids);

/// Rows of weight (V, D) by id: (..., D). With an order of the same ids, the gradient of a row is summed up
/// in fp32 in that order and rounded once.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, const TokenOrder& order);

/// The same with an order of its own.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

/// The same in ordinary ATen.
at::Tensor embedding_plain(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace tightloop::ops
