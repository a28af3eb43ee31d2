#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "dist/processes.h"
#include "train/optim/layer_norms.h"
#include "train/optim/shard_plan.h"

namespace tightloop {

/// Brings the weights that other processes have updated (dist.shard). Those of a sliced bucket are moved into
/// one flat piece of memory, which the parameters become views of.
class WeightGather {
 public:
  /// `parameters` in the compute dtype; `layers`: which block each belongs to.
  WeightGather(const std::vector<at::Tensor>& parameters, const ShardPlan& plan, const Layers& layers,
               Processes& processes);

  /// What this process updates, in the order of ShardPlan::own: views of the parameters.
  const std::vector<at::Tensor>& own() const { return own_; }

  /// Starts to bring all weights: first those that are in no block, then block by block.
  void start();
  /// Waits for those that are in no block; for those that a block needs; for all.
  void wait_outside() { wait(outside_); }
  void wait_block(size_t block) { wait(block < turns_.size() ? turns_[block] : order_.size()); }
  void wait_all() { wait(order_.size()); }
  /// See Optimizer::watch_waits.
  void watch_waits(std::function<void(bool begins)> around) { around_wait_ = std::move(around); }
  /// Those under way are not waited for any more.
  void drop();

 private:
  struct Bucket {
    const BucketExtent* extent;
    at::Tensor flat, part;
    Pending pending{};
  };
  /// For the first `turns` of those that travel.
  void wait(size_t turns);
  void choose_order(const Layers& layers);

  const ShardPlan plan_;
  Processes& processes_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> order_;  // of travelling
  std::vector<size_t> turns_;  // by block: how many of them it needs
  size_t outside_ = 0;         // how many hold something that is in no block
  size_t arrived_ = 0;
  std::function<void(bool begins)> around_wait_;
  std::vector<at::Tensor> own_;
};

}  // namespace tightloop
