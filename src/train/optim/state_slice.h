#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dist/processes.h"
#include "model/files/safetensors.h"

namespace tightloop {

/// What this process has of a tensor that checkpoints hold whole.
struct StateSlice {
  std::string name;
  std::vector<int64_t> sizes;  // of the whole
  int64_t begin = 0;           // of the whole, flattened
  at::Tensor values;           // of any shape

  bool whole() const;
};

/// One that is whole.
StateSlice whole_slice(std::string name, const at::Tensor& values);

/// The whole tensors, copied to the host, in the main process; nothing in the others. All call it, each with
/// its slices. Scalars are the main process's own: all have the same.
NamedTensors gather_whole(const std::vector<StateSlice>& slices, Processes& processes);

/// Copies into the slices what a file says of the whole tensors. A missing or differently shaped tensor is a
/// checkpoint error that names it and `file`.
void load_slices(const std::vector<StateSlice>& slices, const Safetensors& whole, const std::string& file);

}  // namespace tightloop
