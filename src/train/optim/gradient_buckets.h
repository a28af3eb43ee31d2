#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dist/processes.h"

namespace tightloop {

/// Gradients of all parameters in one flat piece of memory for each dtype, which stays where it is for the
/// run: captured graphs write to it. It is laid out in the order in which backward makes gradients (that of
/// the parameters, reversed) and cut into buckets: each is whole as soon as backward has passed its last
/// parameter, and travels as it is, without being packed.
class GradientBuckets {
 public:
  struct Bucket {
    std::vector<size_t> parameters;  // whose gradients are in it, in this order
    at::Tensor flat;                 // all of them, and zeros up to the next multiple of kAlignment

    /// Adds up the bucket over all processes.
    Pending reduce(Processes& processes) const;
  };

  /// Every gradient begins at a multiple of so many bytes, as tensors of their own do on GPUs: kernels take
  /// the same path and round the same way. A bucket therefore divides among 2, 4, ... 128 processes.
  static constexpr int64_t kAlignment = 512;
  /// Enough for the network's full speed; the last bucket, which nothing hides, is to be small.
  static constexpr int64_t kBytes = 25 << 20;

  /// For gradients of the sizes, dtypes and device of `like`, one for each parameter. A bucket has at most
  /// `bytes`, or one gradient that is larger.
  explicit GradientBuckets(const std::vector<at::Tensor>& like, int64_t bytes = kBytes);

  /// In the order of the parameters: views.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// In the order in which backward completes them.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  /// Adds up all buckets over all processes.
  void reduce(Processes& processes) const;

 private:
  std::vector<at::Tensor> gradients_;
  std::vector<Bucket> buckets_;
};

}  // namespace tightloop
