#pragma once

// Many tensors in one launch: a table of them travels as a kernel argument, and each block takes one piece of
// one tensor. No torch here.

#include <cstdint>

namespace tightloop::ops::cuda {

constexpr int kTableSize = 512;      // a table must fit the 32,764 bytes of kernel arguments
constexpr int64_t kPiece = 1 << 14;  // elements that a block takes

/// Which blocks belong to which tensor.
struct BlockMap {
  int tensors = 0;
  int first_block[kTableSize + 1] = {0};

  bool full() const { return tensors == kTableSize; }
  void add(int64_t elements) {
    first_block[tensors + 1] = first_block[tensors] + static_cast<int>((elements + kPiece - 1) / kPiece);
    ++tensors;
  }
  int blocks() const { return first_block[tensors]; }
};

/// The tensor of this block, by bisection. Tests run it on the host.
#ifdef __CUDACC__
__device__
#endif
    inline int
    tensor_of(const BlockMap& map, int block) {
  int low = 0, high = map.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (map.first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

}  // namespace tightloop::ops::cuda
