#pragma once

#include <cstdint>
#include <vector>

namespace tightloop {

/// A bucket of gradients (train/optim/gradient_buckets.h) as the clock sees it.
struct BucketSchedule {
  double ready = 1;   // the part of the backward pass after which its last gradient is there
  double needed = 0;  // the part of the forward pass before which its weights are first read
  double reduce = 0;  // seconds of its reduction alone
  double gather = 0;  // seconds in which the updated weights travel; 0: they do not
};

/// A training step of one process, all of which do the same at the same time.
struct StepSchedule {
  double forward = 0, backward = 0;  // seconds of a micro-batch
  double update = 0;
  double sums = 0;   // small collectives between the last bucket and the update: token counts, the norm
  double other = 0;  // waiting for data and for the host
  int64_t accumulate = 1;
  bool overlap = true;     // else buckets travel after the backward pass, and weights before the forward pass
  bool each_pass = false;  // every micro-batch is reduced, not the last one alone
  std::vector<BucketSchedule> buckets{};  // in the order in which they are reduced
};

/// Seconds since the update before ended, with which the step begins.
struct BucketTimes {
  double gather_end = 0;                    // its weights are there
  double ready = 0;                         // its last gradient is there
  double reduce_begin = 0, reduce_end = 0;  // in the last micro-batch
};

struct SimulatedStep {
  double step = 0;           // from update to update
  double compute = 0;        // forward, backward, update, other: what the step would take alone
  double communication = 0;  // seconds in which the channel is busy
  double exposed() const { return step - compute; }  // of which computing waits for so many
  std::vector<BucketTimes> buckets{};                // in the order of StepSchedule::buckets
};

/// A step in the middle of a run: events in their order, on one channel that does one thing at a time. The
/// update before has just ended. When data is there, weights travel in the order in which forward reads them,
/// and forward waits where they are not there; buckets are reduced in their order, each when its gradients
/// are there and the one before is done; the update begins when all are.
SimulatedStep simulate(const StepSchedule& schedule);

}  // namespace tightloop
