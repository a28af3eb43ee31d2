#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tightloop {

/// A block of a model: a function of its inputs, and of parameters that it knows by itself.
using BlockFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// Runs a block that keeps nothing but its inputs: the backward pass runs it again for the rest, then gives
/// the gradients of its inputs and of `parameters` as if the block had been an operator. `parameters` are all
/// tensors with a gradient that the block reads besides its inputs; undefined ones are passed over. What the
/// block refers to must last until then, and it must compute the same again: its random numbers come from
/// ops::dropout, which has no state. Nothing waits for the device, so that graphs can be captured over it.
std::vector<at::Tensor> recomputed(BlockFunction block, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters);

}  // namespace tightloop
