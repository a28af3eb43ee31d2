#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "train/dist_config.h"
#include "train/optim/shard_plan.h"
#include "train/train_config.h"

namespace tightloop {

/// A bucket of gradients as a run will have it, known before there is one.
struct PlannedBucket {
  std::string first, last;    // names of the parameters at its ends, in the order of backward
  double gradient_bytes = 0;  // that travel, what aligns them included
  double weight_bytes = 0;    // of the same weights in the compute dtype
  int owner = BucketExtent::kSliced;
  double ready = 1, needed = 0;  // as BucketSchedule has them
};

/// How many of each shape (rows, columns) Muon updates together.
using MatrixCounts = std::map<std::pair<int64_t, int64_t>, int64_t>;
/// Those of a model.
MatrixCounts muon_matrices(const Model& model, OptimizerKind optimizer);

struct BucketPlan {
  std::vector<PlannedBucket> buckets{};          // in the order in which they are reduced
  double forward_flops = 0, backward_flops = 0;  // of a token
  /// Parameters that the process with most of them updates, and those of them in Muon's matrices; all, where
  /// nothing is sharded.
  int64_t most_owned = 0, most_owned_matrices = 0;
  double update_share = 1;                    // which part of the update the process with most to do has
  std::vector<MatrixCounts> muon_matrices{};  // by process, or one for all where nothing is sharded
};

struct BucketPlanOptions {
  DistConfig dist{};
  int world = 1;
  OptimizerKind optimizer = OptimizerKind::kAdamw;
  bool accumulates = false;  // several micro-batches add up, which they do in fp32
  int64_t length = 1024;     // tokens a row, for attention
  c10::ScalarType compute = c10::ScalarType::BFloat16;
  bool head_in_forward = false;  // the head makes its gradients in the forward pass (ops/loss/fused_head.h)
};

/// The buckets of a model, which may be one of shapes alone (make_shapes()), as training will have them: when
/// each is whole and when its weights are read, by the FLOPs of products and attention behind and before it.
BucketPlan plan_buckets(const Model& model, const BucketPlanOptions& options);

}  // namespace tightloop
