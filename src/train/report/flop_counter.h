#pragma once

#include <cstdint>

namespace tightloop {

/// Counts, while it lives, the floating point operations of what torch is asked to compute on this thread and
/// in backward passes that start here: matrix products (2 for each multiplication and addition) and attention
/// (as products, the causal half included; backward is twice forward). It sees operators, not kernels, so a
/// replayed graph counts nothing. Element-wise work and operators of our own count nothing either. One lives
/// at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  double count() const;

 private:
  uint64_t handle_;
};

}  // namespace tightloop
