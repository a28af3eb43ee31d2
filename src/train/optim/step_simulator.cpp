#include "train/optim/step_simulator.h"

#include <algorithm>
#include <numeric>

namespace tightloop {

namespace {

/// The buckets in the order in which forward reads their weights.
std::vector<size_t> order_of_need(const std::vector<BucketSchedule>& buckets) {
  std::vector<size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return buckets[i].needed; });
  return order;
}

}  // namespace

SimulatedStep simulate(const StepSchedule& schedule) {
  const auto& buckets = schedule.buckets;
  SimulatedStep result;
  result.buckets.resize(buckets.size());
  const auto passes = static_cast<double>(schedule.accumulate);
  result.compute = passes * (schedule.forward + schedule.backward) + schedule.update + schedule.other;

  double now = schedule.other, channel = now;  // where computing is, and when the channel is free
  const auto order = order_of_need(buckets);
  for (const size_t i : order) {
    channel += buckets[i].gather, result.communication += buckets[i].gather;
    result.buckets[i].gather_end = channel;
  }
  if (!schedule.overlap) now = channel;
  double done = 0;  // of the first forward pass
  for (const size_t i : order) {
    now = std::max(now + (buckets[i].needed - done) * schedule.forward, result.buckets[i].gather_end);
    done = buckets[i].needed;
  }
  now += (1 - done) * schedule.forward;

  for (int64_t pass = 0; pass < schedule.accumulate; ++pass) {
    if (pass > 0) now += schedule.forward;
    const double begin = now;
    now += schedule.backward;
    if (pass + 1 < schedule.accumulate && !schedule.each_pass) continue;
    for (size_t i = 0; i < buckets.size(); ++i) {
      BucketTimes& times = result.buckets[i];
      times.ready = schedule.overlap ? begin + buckets[i].ready * schedule.backward : now;
      times.reduce_begin = std::max(channel, times.ready);
      channel = times.reduce_end = times.reduce_begin + buckets[i].reduce;
      result.communication += buckets[i].reduce;
    }
    if (!schedule.overlap) now = std::max(now, channel);
  }
  result.communication += schedule.sums;
  result.step = std::max(now, channel) + schedule.sums + schedule.update;
  return result;
}

}  // namespace tightloop
