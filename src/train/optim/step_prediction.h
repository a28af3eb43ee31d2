#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/network.h"
#include "train/optim/bucket_plan.h"
#include "train/optim/step_simulator.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// How long one process computes, alone or with the others: seconds, and where they are from.
struct ComputeTimes {
  double forward = 0, backward = 0;  // of a micro-batch
  double update = 0;                 // of all parameters
  double other = 0;                  // a step: waiting for data and for the host
  std::string source;                // a sentence
};

/// What a step of several processes will be like.
struct StepPrediction {
  BucketPlan plan;
  StepSchedule schedule;
  SimulatedStep step;
  double without_overlap = 0;                    // seconds of the same step
  double reduced_bytes = 0, gathered_bytes = 0;  // that a process sends, of gradients and of weights
  double alone = 0;                              // seconds of one process with as many micro-batches
};

/// The buckets of a recipe, whose model is resolved, for so many processes.
BucketPlan plan_buckets(const Recipe& recipe, int64_t world, at::ScalarType compute, bool head_in_forward);

/// `times` are those of a process that updates all parameters itself.
StepPrediction predict_step(const Recipe& recipe, BucketPlan plan, const Network& network,
                            const ComputeTimes& times);

}  // namespace tightloop
