#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dist/processes.h"
#include "train/engine/loss.h"

namespace tightloop {

/// What held-out batches come to, each by itself until the end: total() adds them up in their order, so that
/// it has the same bits however they were split over processes.
class HeldOutSums {
 public:
  /// Room for so many batches, of all processes together.
  HeldOutSums(int64_t batches, at::Device device);

  /// What one batch came to: two scalars of the device, which nobody waits for.
  void add(int64_t batch, const at::Tensor& loss, const at::Tensor& correct, int64_t tokens, int64_t bytes);
  /// Brings the others' batches here. Each was added in one process, and is zeros in the others: their sum is
  /// exact.
  void gather(Processes& processes);
  /// A data error where there was no token to learn.
  HeldOutLoss total() const;

 private:
  at::Tensor losses_, correct_;  // (batches) fp64, int64
  int64_t tokens_ = 0, bytes_ = 0;
};

}  // namespace tightloop
