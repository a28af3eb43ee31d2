#pragma once

#include <ATen/core/Tensor.h>

#include "ops/pointwise/activation_kind.h"
#include "ops/pointwise/dropout.h"

namespace tightloop::ops {

/// dropout(act(x + bias)), x (..., D), bias (D) or none: the inside of a feed-forward, one pass over memory
/// each way, the bias's gradient with it.
at::Tensor activation(const at::Tensor& x, const at::Tensor& bias, ActivationKind kind,
                      const Dropout& drop = {});

/// The same in ordinary ATen.
at::Tensor activation_plain(const at::Tensor& x, const at::Tensor& bias, ActivationKind kind,
                            const Dropout& drop = {});

}  // namespace tightloop::ops
