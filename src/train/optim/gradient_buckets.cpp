#include "train/optim/gradient_buckets.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <map>
#include <utility>

namespace tightloop {

namespace {

int64_t aligned(int64_t values, const BucketExtent& bucket) {
  const int64_t step = ShardPlan::kAlignment / static_cast<int64_t>(c10::elementSize(bucket.dtype));
  return (values + step - 1) / step * step;
}

/// Matrices of one parameter may fill several buckets, and are one tensor all the same.
bool continues_a_parameter(const BucketExtent& bucket) { return bucket.pieces.front().begin > 0; }

}  // namespace

std::vector<PlannedParameter> planned(const std::vector<at::Tensor>& like) {
  std::vector<PlannedParameter> parameters;
  for (const auto& one : like) parameters.push_back({.size = one.numel(), .dtype = one.scalar_type()});
  return parameters;
}

GradientBuckets::GradientBuckets(const ShardPlan& plan, const std::vector<at::Tensor>& like, Keep keep)
    : plan_(plan), keep_(keep), options_(like.front().options()) {
  for (const auto& one : like) TORCH_CHECK(one.is_contiguous(), "a parameter is not dense");
  for (const auto& extent : plan_.buckets()) buckets_.push_back({&extent});
  if (keep_ == Keep::kAll) allocate(like);
  for (auto& bucket : buckets_) {
    const BucketExtent& extent = *bucket.extent;
    const bool sliced = extent.owner == BucketExtent::kSliced;
    if (plan_.sharded() && !sliced && extent.owner != plan_.rank()) continue;
    bucket.part = keep_ == Keep::kAll
                      ? slice_of(bucket)
                      : at::zeros({sliced ? plan_.slice(extent) : extent.size}, options_.dtype(extent.dtype));
  }
  for (const auto& [bucket, offset, piece] : plan_.own())
    own_.push_back(plan_.sharded() ? buckets_[bucket].part.narrow(0, offset, piece.size())
                                   : gradients_[piece.parameter]);
}

void GradientBuckets::allocate(const std::vector<at::Tensor>& like) {
  std::map<c10::ScalarType, int64_t> ends;
  std::vector<int64_t> begins;
  for (const auto& bucket : buckets_) {
    int64_t& end = ends[bucket.extent->dtype];
    if (!continues_a_parameter(*bucket.extent)) end = aligned(end, *bucket.extent);
    begins.push_back(end);
    end += bucket.extent->size;
  }
  std::map<c10::ScalarType, at::Tensor> memory;
  for (const auto& [dtype, end] : ends) memory[dtype] = at::zeros({end}, options_.dtype(dtype));
  gradients_.resize(like.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const BucketExtent& extent = *buckets_[b].extent;
    const at::Tensor& all = memory[extent.dtype];
    buckets_[b].flat = all.narrow(0, begins[b], extent.size);
    for (size_t i = 0; i < extent.pieces.size(); ++i) {
      const ParameterPiece& piece = extent.pieces[i];
      if (piece.begin > 0) continue;
      const at::Tensor& shape = like[piece.parameter];
      gradients_[piece.parameter] =
          all.narrow(0, begins[b] + extent.offsets[i], shape.numel()).view(shape.sizes());
    }
  }
}

at::Tensor GradientBuckets::slice_of(const Bucket& bucket) const {
  if (!plan_.sharded() || bucket.extent->owner != BucketExtent::kSliced) return bucket.flat;
  const int64_t slice = plan_.slice(*bucket.extent);
  return bucket.flat.narrow(0, plan_.rank() * slice, slice);
}

void GradientBuckets::put(size_t index, size_t parameter, const at::Tensor& gradient, bool first) {
  Bucket& bucket = buckets_[index];
  if (!bucket.flat.defined())
    bucket.flat = at::zeros({bucket.extent->size}, options_.dtype(bucket.extent->dtype));
  for (size_t i = 0; i < bucket.extent->pieces.size(); ++i) {
    const ParameterPiece& piece = bucket.extent->pieces[i];
    if (piece.parameter != parameter) continue;
    at::Tensor to = bucket.flat.narrow(0, bucket.extent->offsets[i], piece.size());
    const bool replace = first || keep_ == Keep::kOwn;  // with the latter, its memory is fresh
    if (!gradient.defined()) {
      if (replace) to.zero_();
      continue;
    }
    const at::Tensor from = gradient.reshape({-1}).narrow(0, piece.begin, piece.size());
    replace ? to.copy_(from) : to.add_(from);
  }
}

Pending GradientBuckets::reduce(size_t index, Processes& processes, bool first) {
  Bucket& bucket = buckets_[index];
  const BucketExtent& extent = *bucket.extent;
  if (!plan_.sharded()) return processes.all_reduce(bucket.flat);
  const bool sliced = extent.owner == BucketExtent::kSliced;
  if (keep_ == Keep::kAll)
    return sliced ? processes.reduce_scatter(bucket.part, bucket.flat)
                  : processes.reduce(bucket.flat, extent.owner);
  // The memory of the bucket is let go of; the collective keeps it until it is done.
  const at::Tensor flat = std::exchange(bucket.flat, {});
  const at::Tensor sum = sliced ? at::empty_like(bucket.part) : flat;
  Pending under_way = sliced ? processes.reduce_scatter(sum, flat) : processes.reduce(flat, extent.owner);
  if (!bucket.part.defined()) return under_way;
  return std::move(under_way).then([sum, part = bucket.part, first] {
    c10::NoGradGuard no_grad;
    first ? part.copy_(sum) : part.add_(sum);
  });
}

}  // namespace tightloop
