#include "train/optim/shard_plan.h"

#include <algorithm>
#include <utility>

namespace tightloop {

namespace {

int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

int64_t alignment_of(c10::ScalarType dtype) {
  return ShardPlan::kAlignment / static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t bytes_of(const BucketExtent& bucket, int64_t size) {
  return size * static_cast<int64_t>(c10::elementSize(bucket.dtype));
}

void add(BucketExtent& bucket, const ParameterPiece& piece, int64_t padded) {
  bucket.pieces.push_back(piece);
  bucket.offsets.push_back(bucket.size);
  bucket.size += padded;
}

}  // namespace

double muon_cost(const PlannedParameter::Matrix& matrix) {
  // Five steps of three products, and some twenty passes over the matrix, which move bytes.
  constexpr double kSteps = 5, kPasses = 2000;
  const auto m = static_cast<double>(std::min(matrix.rows, matrix.columns)),
             n = static_cast<double>(std::max(matrix.rows, matrix.columns));
  return kSteps * m * m * (2 * n + m) + kPasses * m * n;
}

ShardPlan::ShardPlan(const std::vector<PlannedParameter>& parameters, const Options& options)
    : options_(options) {
  for (size_t i = parameters.size(); i-- > 0;) {
    const bool whole = options_.sharded && !parameters[i].matrices.empty();
    whole ? add_whole_matrices(i, parameters[i]) : add_sliced(i, parameters[i]);
  }
  if (options_.sharded) {
    for (auto& bucket : buckets_)
      if (bucket.owner == BucketExtent::kSliced)
        bucket.size = round_up(bucket.size, alignment_of(bucket.dtype) * options_.world);
    choose_owners(parameters);
  }
  own_ = own(options_.rank);
}

// Matrices of one parameter, as many as a bucket takes: neighbours of other parameters may have other owners.
void ShardPlan::add_whole_matrices(size_t index, const PlannedParameter& parameter) {
  constexpr int kOpen = 0;  // until owners are chosen
  int64_t begin = 0;
  BucketExtent bucket{.dtype = parameter.dtype, .owner = kOpen};
  for (const auto& [rows, columns] : parameter.matrices) {
    const int64_t size = rows * columns;
    if (bucket.size > 0 && bytes_of(bucket, bucket.size + size) > options_.bytes) {
      buckets_.push_back(std::move(bucket));
      bucket = {.dtype = parameter.dtype, .owner = kOpen};
    }
    if (bucket.pieces.empty()) add(bucket, {index, begin, begin}, 0);
    begin += size, bucket.size += size;
    bucket.pieces.back().end = begin;
  }
  buckets_.push_back(std::move(bucket));
}

void ShardPlan::add_sliced(size_t index, const PlannedParameter& parameter) {
  const int64_t padded = round_up(parameter.size, alignment_of(parameter.dtype));
  const auto newest = std::find_if(buckets_.rbegin(), buckets_.rend(), [&](const BucketExtent& bucket) {
    return bucket.owner == BucketExtent::kSliced && bucket.dtype == parameter.dtype;
  });
  const bool open = newest != buckets_.rend() && bytes_of(*newest, newest->size + padded) <= options_.bytes;
  BucketExtent& bucket = open ? *newest : buckets_.emplace_back(BucketExtent{.dtype = parameter.dtype});
  add(bucket, {index, 0, parameter.size}, padded);
}

// The costliest first, each to who has the least to do. Then buckets are ordered by when backward completes
// them: some have taken gradients until long after they were begun.
void ShardPlan::choose_owners(const std::vector<PlannedParameter>& parameters) {
  std::vector<size_t> order;
  std::vector<double> costs(buckets_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].owner == BucketExtent::kSliced) continue;
    order.push_back(b);
    const ParameterPiece& piece = buckets_[b].pieces.front();
    int64_t begin = 0;
    for (const auto& matrix : parameters[piece.parameter].matrices) {
      if (begin >= piece.begin && begin < piece.end) costs[b] += muon_cost(matrix);
      begin += matrix.rows * matrix.columns;
    }
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(static_cast<size_t>(options_.world));
  for (const size_t b : order) {
    const auto least = std::ranges::min_element(loads);
    *least += costs[b];
    buckets_[b].owner = static_cast<int>(least - loads.begin());
  }
  std::ranges::stable_sort(buckets_, [](const BucketExtent& a, const BucketExtent& b) {
    return a.pieces.back().parameter > b.pieces.back().parameter;
  });
}

std::vector<ShardPlan::Own> ShardPlan::own(int rank) const {
  std::vector<Own> owned;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const BucketExtent& bucket = buckets_[b];
    const bool sliced = options_.sharded && bucket.owner == BucketExtent::kSliced;
    if (options_.sharded && !sliced && bucket.owner != rank) continue;
    const int64_t first = sliced ? rank * slice(bucket) : 0,
                  last = sliced ? first + slice(bucket) : bucket.size;
    for (size_t i = 0; i < bucket.pieces.size(); ++i) {
      const ParameterPiece& piece = bucket.pieces[i];
      const int64_t begin = std::max(first, bucket.offsets[i]),
                    end = std::min(last, bucket.offsets[i] + piece.size());
      if (begin >= end) continue;
      const int64_t skipped = begin - bucket.offsets[i];
      owned.push_back(
          {b, begin - first, {piece.parameter, piece.begin + skipped, piece.begin + skipped + end - begin}});
    }
  }
  // Whatever adds up over pieces, such as the gradient's norm, does so in one order, sharded or not.
  std::ranges::sort(owned, {},
                    [](const Own& one) { return std::pair(one.piece.parameter, one.piece.begin); });
  return owned;
}

}  // namespace tightloop
