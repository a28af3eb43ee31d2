#include "train/optim/step_prediction.h"

#include <utility>

namespace tightloop {

BucketPlan plan_buckets(const Recipe& recipe, int64_t world, at::ScalarType compute, bool head_in_forward) {
  return plan_buckets(*make_shapes(recipe.model), {.dist = recipe.dist,
                                                   .world = static_cast<int>(world),
                                                   .optimizer = recipe.train.optimizer,
                                                   .accumulates = recipe.train.accumulate > 1,
                                                   .length = recipe.data.seq_len,
                                                   .compute = compute,
                                                   .head_in_forward = head_in_forward});
}

StepPrediction predict_step(const Recipe& recipe, BucketPlan plan, const Network& network,
                            const ComputeTimes& times) {
  const bool sharded = recipe.dist.shard != Sharding::kNone;
  StepPrediction found;
  constexpr double kFewBytes = 16;  // a loss and a token count
  found.schedule = {.forward = times.forward,
                    .backward = times.backward,
                    .update = times.update * plan.update_share,
                    .sums = (sharded ? 2 : 1) * network.reduce_time(kFewBytes),
                    .other = times.other,
                    .accumulate = recipe.train.accumulate,
                    .overlap = recipe.dist.overlap,
                    .each_pass = recipe.dist.shard == Sharding::kGradients};
  const double passes = found.schedule.each_pass ? static_cast<double>(recipe.train.accumulate) : 1;
  for (const PlannedBucket& bucket : plan.buckets) {
    const double bytes = bucket.gradient_bytes, weights = bucket.weight_bytes;
    const bool whole = bucket.owner != BucketExtent::kSliced;  // to and from one process
    found.schedule.buckets.push_back({.ready = bucket.ready,
                                      .needed = bucket.needed,
                                      .reduce = !sharded ? network.reduce_time(bytes)
                                                : whole  ? network.chain_time(bytes)
                                                         : network.scatter_time(bytes),
                                      .gather = !sharded ? 0
                                                : whole  ? network.chain_time(weights)
                                                         : network.scatter_time(weights)});
    found.reduced_bytes += passes * (sharded ? network.scattered_bytes(bytes) : network.reduced_bytes(bytes));
    if (sharded) found.gathered_bytes += network.scattered_bytes(bucket.weight_bytes);
  }
  found.step = simulate(found.schedule);
  StepSchedule after = found.schedule;
  after.overlap = false;
  found.without_overlap = simulate(after).step;
  found.alone = static_cast<double>(recipe.train.accumulate) * (times.forward + times.backward) +
                times.update + times.other;
  found.plan = std::move(plan);
  return found;
}

}  // namespace tightloop
