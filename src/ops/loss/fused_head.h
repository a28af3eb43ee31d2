#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/loss/cross_entropy.h"

namespace tightloop::ops {

/// The cross entropy of logits = hidden weight^T without ever holding them whole: logits, loss and gradients
/// are made for some rows at a time, in the forward pass. hidden (N, D), weight (V, D) of one dtype, targets
/// as for cross_entropy. Products are in that dtype, the loss in fp32, and the weight's gradient is added up
/// in fp32 over the chunks. Holds one chunk of logits besides its results: an eighth of them at most on the
/// CPU, given some 50 rows or more, and 4,096 rows on a GPU. What no kernel takes goes by whole logits. Where
/// fp8 is on and takes them (ops/fp8/fp8_linear.h), the three products are in fp8, by twice as many rows.
LossSum fused_head(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                   const LossOptions& options = {});

/// The same by whole logits.
LossSum fused_head_plain(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                         const LossOptions& options = {});

/// How many rows a chunk has, but in fp8.
int64_t fused_head_rows(const at::Tensor& hidden);

/// What fused_head holds at most besides its inputs, in bytes, when it makes gradients of both: `rows` hidden
/// states (rows, width) and a weight (vocabulary, width) of so many bytes an element; `fp8`: by products in
/// fp8.
double fused_head_bytes(int64_t rows, int64_t vocabulary, int64_t width, int64_t element, bool cuda,
                        bool fp8 = false);

}  // namespace tightloop::ops
