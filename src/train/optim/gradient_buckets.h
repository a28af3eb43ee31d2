#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dist/processes.h"
#include "train/optim/shard_plan.h"

namespace tightloop {

/// The memory of gradients, laid out by a ShardPlan. It stays where it is for the run: captured graphs write
/// to it. A bucket is whole as soon as backward has passed its last parameter, and travels as it is, without
/// being packed.
///
/// Where processes keep only what they update (dist.shard gradients), a bucket has memory while it is filled
/// and travels, and what it came to is added to the process's own part.
class GradientBuckets {
 public:
  enum class Keep { kAll, kOwn };

  struct Bucket {
    const BucketExtent* extent;
    at::Tensor flat{};  // all of it; with Keep::kOwn undefined but while it is filled
    at::Tensor part{};  // what this process updates; undefined where that is nothing
  };

  GradientBuckets(const ShardPlan& plan, const std::vector<at::Tensor>& like, Keep keep);
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// In the order of the parameters: views. None with Keep::kOwn.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// What this process updates, in the order of ShardPlan::own: views.
  const std::vector<at::Tensor>& own() const { return own_; }
  /// In the order in which backward completes them.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const ShardPlan& plan() const { return plan_; }

  /// Adds to a bucket, or replaces it (`first`), by the gradient of a parameter that is in it; undefined: by
  /// zeros.
  void put(size_t bucket, size_t parameter, const at::Tensor& gradient, bool first);
  /// Starts to add up a bucket over processes: what the process updates is in its part after wait(), with
  /// Keep::kOwn added to what was there, unless `first`.
  Pending reduce(size_t bucket, Processes& processes, bool first);

 private:
  void allocate(const std::vector<at::Tensor>& like);
  at::Tensor slice_of(const Bucket& bucket) const;

  const ShardPlan plan_;
  const Keep keep_;
  at::TensorOptions options_;
  std::vector<at::Tensor> gradients_, own_;
  std::vector<Bucket> buckets_;
};

/// What a plan needs to know of tensors that can be cut anywhere.
std::vector<PlannedParameter> planned(const std::vector<at::Tensor>& like);

}  // namespace tightloop
