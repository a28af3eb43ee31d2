#include "train/optim/bucket_plan.h"

#include <algorithm>
#include <numeric>

#include "train/optim/layer_norms.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {

namespace {

/// FLOPs of a token before a parameter is read in the forward pass, and until its gradient is whole in the
/// backward pass.
struct ParameterTimes {
  double read = 0, whole = 0;
};

double forward_flops(const Parameter& parameter, const ModelConfig& config) {
  const bool looked_up =
      parameter.role == ParameterRole::kEmbedding || parameter.role == ParameterRole::kValueEmbedding;
  if (looked_up || parameter.value.dim() < 2) return 0;
  const auto values = static_cast<double>(parameter.value.numel());
  const bool experts = parameter.value.dim() == 3;
  return 2 * (experts ? values / static_cast<double>(parameter.value.size(0)) *
                            static_cast<double>(config.experts_per_token)
                      : values);
}

double attention_flops(const ModelConfig& config, int64_t layer, int64_t length) {
  const int64_t window = config.window(layer);
  const auto seen = static_cast<double>(window > 0 ? std::min(window, length) : length);
  return 4 * static_cast<double>(config.heads * config.head_size) * seen;
}

/// Of each parameter, and at the end of both passes.
struct Timeline {
  std::vector<ParameterTimes> parameters;
  double forward = 0, backward = 0;
};

// Parameters are in the order in which forward reads them. Attention is between the first matrix of a block
// (q, k and v) and its others.
Timeline timeline(const Model& model, const BucketPlanOptions& options) {
  const auto& all = model.parameters().all();
  const Layers layers(model.parameters());
  const at::Tensor head = model.head().weight_VD;
  const double head_flops = 2 * static_cast<double>(head.numel());
  Timeline line;
  line.parameters.resize(all.size());
  std::vector<double> attention(all.size());  // right after this parameter, in the forward pass
  std::vector<size_t> first_matrix(layers.names().blocks, all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t layer = layers.of(i);
    if (layer >= layers.names().blocks || all[i].role != ParameterRole::kMatrix) continue;
    if (first_matrix[layer] < all.size()) continue;
    first_matrix[layer] = i;
    attention[i] = attention_flops(model.config(), static_cast<int64_t>(layer), options.length);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    line.parameters[i].read = line.forward;
    if (!all[i].value.is_same(head)) line.forward += forward_flops(all[i], model.config()) + attention[i];
  }
  line.forward += (options.head_in_forward ? 3 : 1) * head_flops;
  line.backward = options.head_in_forward ? 0 : 2 * head_flops;
  for (size_t i = all.size(); i-- > 0;) {
    line.backward += 2 * attention[i];  // before the gradient of q, k and v
    if (!all[i].value.is_same(head)) line.backward += 2 * forward_flops(all[i], model.config());
    line.parameters[i].whole = line.backward;
  }
  // A gradient is whole where backward leaves its parameter, but for a value embedding, which is looked up at
  // attention though it is listed last, and for tables and scales in no block, which are read first. Weights
  // are waited for before a block, those in none before everything (WeightGather).
  std::vector<double> block_begin(layers.names().blocks, line.forward);
  for (size_t i = 0; i < all.size(); ++i)
    if (const size_t layer = layers.of(i); layer < block_begin.size())
      block_begin[layer] = std::min(block_begin[layer], line.parameters[i].read);
  for (size_t i = 0; i < all.size(); ++i) {
    ParameterTimes& times = line.parameters[i];
    const size_t layer = layers.of(i);
    if (all[i].role == ParameterRole::kValueEmbedding)
      times.whole = line.parameters[first_matrix[layer]].whole;
    if (all[i].role == ParameterRole::kEmbedding || (layer >= block_begin.size() && times.read == 0))
      times.whole = line.backward;
    times.read = layer < block_begin.size() ? block_begin[layer] : 0;
  }
  return line;
}

/// The matrices that are in a piece, which has them whole.
std::vector<PlannedParameter::Matrix> matrices_of(const PlannedParameter& parameter,
                                                  const ParameterPiece& piece) {
  std::vector<PlannedParameter::Matrix> found;
  int64_t begin = 0;
  for (const auto& matrix : parameter.matrices) {
    if (begin >= piece.begin && begin < piece.end) found.push_back(matrix);
    begin += matrix.rows * matrix.columns;
  }
  return found;
}

/// What the update of a piece costs, in multiplications: Muon's by whole matrices, AdamW's by values.
double cost_of(const std::vector<PlannedParameter>& parameters, const ParameterPiece& piece) {
  constexpr double kAdamw = 1000;  // of a value; it is bound by the memory, as what muon_cost() has for bytes
  const PlannedParameter& parameter = parameters[piece.parameter];
  if (parameter.matrices.empty()) return kAdamw * static_cast<double>(piece.size());
  double cost = 0;
  for (const auto& matrix : matrices_of(parameter, piece)) cost += muon_cost(matrix);
  return cost;
}

}  // namespace

MatrixCounts muon_matrices(const Model& model, OptimizerKind optimizer) {
  TrainConfig train;
  train.optimizer = optimizer;
  MatrixCounts counts;
  for (const Parameter& parameter : model.parameters().all())
    if (takes_muon(parameter, train))
      for (const auto& [rows, columns] : matrices_in(parameter)) ++counts[{rows, columns}];
  return counts;
}

BucketPlan plan_buckets(const Model& model, const BucketPlanOptions& options) {
  const auto& all = model.parameters().all();
  const bool sharded = options.dist.shard != Sharding::kNone && options.world > 1,
             muon = options.optimizer == OptimizerKind::kMuon;
  const auto gradients = options.dist.reduce == ReduceDtype::kFp32 ? c10::ScalarType::Float : options.compute;
  TrainConfig train;
  train.optimizer = options.optimizer;
  std::vector<PlannedParameter> parameters;  // as the optimizer has them
  for (const Parameter& parameter : all)
    parameters.push_back({.size = parameter.value.numel(),
                          .dtype = gradients,
                          .matrices = takes_muon(parameter, train)
                                          ? matrices_in(parameter)
                                          : std::vector<PlannedParameter::Matrix>()});
  const ShardPlan shards(parameters, {.bytes = static_cast<int64_t>(options.dist.bucket_mb * (1 << 20)),
                                      .world = options.world,
                                      .sharded = sharded});
  const Timeline line = timeline(model, options);
  BucketPlan plan{.forward_flops = line.forward, .backward_flops = line.backward};
  for (const BucketExtent& bucket : shards.buckets()) {
    PlannedBucket& next = plan.buckets.emplace_back();
    next.first = all[bucket.pieces.front().parameter].name,
    next.last = all[bucket.pieces.back().parameter].name;
    const auto size = static_cast<double>(bucket.size);
    next.gradient_bytes = size * static_cast<double>(c10::elementSize(bucket.dtype));
    next.weight_bytes = size * static_cast<double>(c10::elementSize(options.compute));
    next.owner = bucket.owner;
    next.ready = 0, next.needed = 1;
    for (const ParameterPiece& piece : bucket.pieces) {
      const ParameterTimes& times = line.parameters[piece.parameter];
      next.ready = std::max(next.ready, times.whole / line.backward);
      next.needed = std::min(next.needed, times.read / line.forward);
    }
  }
  std::vector<double> costs;
  for (int rank = 0; rank < (sharded ? options.world : 1); ++rank) {
    int64_t owned = 0, matrices = 0;
    double cost = 0;
    MatrixCounts& counts = plan.muon_matrices.emplace_back();
    for (const auto& own : shards.own(rank)) {
      for (const auto& matrix : matrices_of(parameters[own.piece.parameter], own.piece))
        ++counts[{matrix.rows, matrix.columns}];
      owned += own.piece.size(), cost += cost_of(parameters, own.piece);
      if (muon && all[own.piece.parameter].role == ParameterRole::kMatrix) matrices += own.piece.size();
    }
    if (owned > plan.most_owned) plan.most_owned = owned, plan.most_owned_matrices = matrices;
    costs.push_back(cost);
  }
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  plan.update_share = *std::ranges::max_element(costs) / total;
  return plan;
}

}  // namespace tightloop
