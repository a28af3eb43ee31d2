#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "model/parts/recompute.h"

namespace tightloop {

/// What a block reads. Such structs name all their tensors in order; those that a block does without are
/// undefined.
struct BlockInputs {
  at::Tensor residual;       // the stream
  at::Tensor branch{};       // what the block before made last, which is added where this one begins
  at::Tensor branch_bias{};  // of that, where it was left to this block

  std::vector<at::Tensor*> all() { return {&residual, &branch, &branch_bias}; }
};

/// What a block makes.
struct BlockOutputs {
  at::Tensor residual;
  at::Tensor branch{};       // not yet added to the stream
  at::Tensor expert_load{};  // (E): share of the choices that each expert got
  at::Tensor balance{};      // scalar: what its experts add to the loss

  std::vector<at::Tensor*> all() { return {&residual, &branch, &expert_load, &balance}; }
};

/// The tensors of such a struct that are defined, as a list, and back again.
template <class Tensors>
std::vector<at::Tensor> to_list(Tensors tensors, std::vector<bool>& defined) {
  std::vector<at::Tensor> list;
  defined.clear();
  for (const at::Tensor* tensor : tensors.all()) {
    defined.push_back(tensor->defined());
    if (tensor->defined()) list.push_back(*tensor);
  }
  return list;
}
template <class Tensors>
Tensors from_list(const std::vector<at::Tensor>& list, const std::vector<bool>& defined) {
  Tensors tensors;
  size_t index = 0, next = 0;
  for (at::Tensor* tensor : tensors.all())
    if (defined[index++]) *tensor = list[next++];
  return tensors;
}

/// recomputed() for a block from one such struct to another.
template <class Inputs, class Block>
auto recomputed_block(const Block& block, const Inputs& inputs, const std::vector<at::Tensor>& parameters) {
  std::vector<bool> given;
  const auto list = to_list(inputs, given);
  const auto made = std::make_shared<std::vector<bool>>();
  const auto outputs = recomputed(
      [block, given, made](const std::vector<at::Tensor>& in) {
        return to_list(block(from_list<Inputs>(in, given)), *made);
      },
      list, parameters);
  return from_list<decltype(block(inputs))>(outputs, *made);
}

}  // namespace tightloop
