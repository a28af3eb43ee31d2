#include "train/optim/weight_gather.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

namespace tightloop {

WeightGather::WeightGather(const std::vector<at::Tensor>& parameters, const ShardPlan& plan,
                           const Layers& layers, Processes& processes)
    : plan_(plan), processes_(processes) {
  c10::NoGradGuard no_grad;
  for (const auto& extent : plan_.buckets()) {
    Bucket& bucket = buckets_.emplace_back(Bucket{.extent = &extent, .flat = {}, .part = {}});
    const ParameterPiece& front = extent.pieces.front();
    if (extent.owner != BucketExtent::kSliced) {
      // A stretch of one parameter, which travels as it is.
      const at::Tensor whole = parameters[front.parameter].detach().view({-1});
      bucket.flat = bucket.part = whole.narrow(0, front.begin, front.size());
      continue;
    }
    bucket.flat = at::zeros({extent.size}, parameters[front.parameter].options().requires_grad(false));
    for (size_t i = 0; i < extent.pieces.size(); ++i) {
      const at::Tensor& parameter = parameters[extent.pieces[i].parameter];
      const at::Tensor place =
          bucket.flat.narrow(0, extent.offsets[i], parameter.numel()).view(parameter.sizes());
      place.copy_(parameter.detach());
      parameter.set_data(place);
    }
    bucket.part = bucket.flat.narrow(0, plan.rank() * plan.slice(extent), plan.slice(extent));
  }
  for (const auto& [bucket, offset, piece] : plan.own())
    own_.push_back(buckets_[bucket].part.narrow(0, offset, piece.size()));
  choose_order(layers);
}

void WeightGather::choose_order(const Layers& layers) {
  const size_t blocks = layers.names().blocks;
  // By bucket, the first block that needs it; that of what is in none comes before all.
  std::vector<size_t> first(buckets_.size(), blocks + 1);
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (const auto& piece : buckets_[b].extent->pieces) {
      const size_t layer = layers.of(piece.parameter);
      first[b] = std::min(first[b], layer < blocks ? layer + 1 : 0);
    }
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, [&](size_t a, size_t b) { return first[a] < first[b]; });
  turns_.assign(blocks, 0);
  for (size_t turn = 0; turn < order_.size(); ++turn) {
    if (first[order_[turn]] == 0) outside_ = turn + 1;
    for (const auto& piece : buckets_[order_[turn]].extent->pieces)
      if (const size_t layer = layers.of(piece.parameter); layer < blocks) turns_[layer] = turn + 1;
  }
  arrived_ = order_.size();
}

void WeightGather::start() {
  wait_all();
  arrived_ = 0;
  for (const size_t b : order_) {
    Bucket& bucket = buckets_[b];
    bucket.pending = bucket.extent->owner == BucketExtent::kSliced
                         ? processes_.all_gather(bucket.flat, bucket.part)
                         : processes_.start_broadcast(bucket.flat, bucket.extent->owner);
  }
}

void WeightGather::drop() {
  for (auto& bucket : buckets_) bucket.pending = {};
  arrived_ = order_.size();
}

void WeightGather::wait(size_t turns) {
  if (arrived_ >= turns) return;
  if (around_wait_) around_wait_(true);
  for (; arrived_ < turns; ++arrived_) buckets_[order_[arrived_]].pending.wait();
  if (around_wait_) around_wait_(false);
}

}  // namespace tightloop
