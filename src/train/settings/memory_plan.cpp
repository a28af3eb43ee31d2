#include "train/settings/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ops/config.h"
#include "ops/loss/fused_head.h"
#include "ops/optim/muon.h"
#include "train/engine/loss.h"
#include "train/engine/precision.h"

namespace tightloop {

namespace {

constexpr double kLibraries = (33 + 32 + 64) << 20;  // work space of cuBLAS on two streams, and of cuBLASLt
constexpr int64_t kBusyTokens = 8192;                // a micro-batch of fewer leaves a GPU waiting
constexpr double kWide = 4;                          // bytes of fp32

/// What the head holds on top of the activations and the weight's gradient: while it computes the loss, and
/// from then until its gradients were handed on.
struct HeadMemory {
  double forward, kept;
};

HeadMemory head_memory(const ModelConfig& model, const PassShape& shape, bool chunked, bool cuda, bool fp8) {
  const auto N = static_cast<double>(shape.rows * shape.length), V = static_cast<double>(model.vocab_size),
             D = static_cast<double>(model.width), e = static_cast<double>(shape.element);
  const double hidden = N * D * e;
  const double casts = fp8 ? 2 * N * V : 0;
  if (!chunked)
    return {hidden + N * V * e, hidden + N * V * e + casts};  // the gradient takes the logits' place
  const int64_t rows = shape.rows * shape.length;
  return {hidden + ops::fused_head_bytes(rows, model.vocab_size, model.width, shape.element, cuda, fp8),
          hidden};
}

}  // namespace

std::string checkpointing_text(int64_t blocks, const ModelConfig& model) {
  return blocks == 0 ? "none" : blocks == model.layers ? "all" : std::to_string(blocks);
}

bool memory_is_checked(int64_t step) {
  constexpr int64_t kEvery = 50;
  return step % kEvery == 0;
}

bool empties_cache(const TrainConfig& train, int64_t step, const MemoryStats& memory, int64_t total) {
  constexpr double kNearlyFull = 0.9;
  if (train.empty_cache_steps > 0 && step % train.empty_cache_steps == 0) return true;
  const double limit = train.memory_limit * (1 << 30), all = static_cast<double>(total);
  const double most = limit > 0 ? std::min(limit, all) : all;
  return memory_is_checked(step) && static_cast<double>(memory.reserved) > kNearlyFull * most;
}

std::string resolved_checkpointing(const MemoryPlanner& planner, const ModelConfig& model, double memory) {
  if (!model.leaves_checkpointing_open()) return model.gradient_checkpointing;
  const auto found = planner.with_checkpointing(planner.written(), kUsableMemory * memory);
  return checkpointing_text(found ? found->recomputed : model.layers, model);
}

ModelConfig resolved_model(const Recipe& recipe, const Device& device) {
  const auto element = static_cast<int64_t>(c10::elementSize(compute_dtype(recipe.train.precision, device)));
  const auto planner =
      MemoryPlanner(recipe.model, recipe.train, recipe.data.seq_len, element, device.is_cuda())
          .among(recipe.dist, recipe.world);
  const double limit = recipe.train.memory_limit * (1 << 30);
  ModelConfig model = recipe.model;
  model.gradient_checkpointing =
      resolved_checkpointing(planner, model, limit > 0 ? limit : static_cast<double>(device.total_memory()));
  return model;
}

void refuse_too_large(const Recipe& recipe, const ModelConfig& model, const Device& device) {
  // Of pairs and adapters too little is known.
  if (device.is_cuda() || model.translates() || recipe.lora.on()) return;
  const auto element = static_cast<int64_t>(c10::elementSize(compute_dtype(recipe.train.precision, device)));
  const auto planner = MemoryPlanner(model, recipe.train, recipe.data.seq_len, element, /*cuda=*/false)
                           .among(recipe.dist, recipe.world);
  const double limit = recipe.train.memory_limit * (1 << 30),
               all = static_cast<double>(device.total_memory());
  const double memory = limit > 0 ? std::min(limit, all) : all;
  const double needed = planner.plan(planner.written()).total();
  if (memory == 0 || needed <= memory) return;
  const auto gib = [](double bytes) { return fmt::format("{:.3g} GiB", bytes / (1 << 30)); };
  const auto advice = planner.advice(kUsableMemory * memory);
  throw device_error(
      "this training needs about {} of memory, and {} {}. {} 'tightloop fit' shows what needs how much.",
      gib(needed), limit > 0 && limit < all ? "train.memory_limit is" : "there are", gib(memory),
      advice ? fmt::format("The same rows a step fit with: --train.micro_batch {} --train.accumulate {} "
                           "--train.fused_head on --model.gradient_checkpointing {}.",
                           advice->micro_batch, advice->accumulate,
                           checkpointing_text(advice->recomputed, model))
             : "Not even one row at a time fits: take a smaller model or shorter rows (data.seq_len).");
}

double MemoryPlanner::parameters_of_a_block() const {
  const int64_t blocks = model_.layers + (model_.translates() ? model_.encoder_layers : 0);
  return static_cast<double>(size_.blocks) / static_cast<double>(blocks);
}

double MemoryPlanner::muon_parameters() const {
  if (train_.optimizer != OptimizerKind::kMuon) return 0;
  double matrices = 0;
  for (const auto& parameter : make_shapes(model_)->parameters().all())
    if (parameter.role == ParameterRole::kMatrix) matrices += static_cast<double>(parameter.value.numel());
  return matrices;
}

double MemoryPlanner::muon_working(const MatrixCounts& matrices) const {
  const auto compute = element_ < 4 ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
  double most = 0;  // one shape after the other
  for (const auto& [shape, count] : matrices)
    most = std::max(most,
                    ops::muon_workspace(count, shape.first, shape.second, compute, cuda_ && !ops::plain()));
  return most;
}

MemoryPlanner MemoryPlanner::among(const DistConfig& dist, int64_t world) const {
  MemoryPlanner planner = *this;
  if (world == 1) return planner;
  const auto model = make_shapes(model_);
  const auto compute = element_ < 4 ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
  const BucketPlan plan = plan_buckets(*model, {.dist = dist,
                                                .world = static_cast<int>(world),
                                                .optimizer = train_.optimizer,
                                                .accumulates = train_.accumulate > 1,
                                                .length = length_,
                                                .compute = compute});
  Share share{.owned = static_cast<double>(plan.most_owned),
              .owned_matrices = static_cast<double>(plan.most_owned_matrices),
              .taken_at_once = dist.overlap};
  for (const MatrixCounts& matrices : plan.muon_matrices)
    share.update_working = std::max(share.update_working, muon_working(matrices));
  for (const auto& parameter : model->parameters().all())
    share.largest_gradient =
        std::max(share.largest_gradient, static_cast<double>(element_ * parameter.value.numel()));
  double largest = 0, received = 0;
  for (const auto& bucket : plan.buckets) {
    share.buckets += bucket.gradient_bytes;
    largest = std::max(largest, bucket.gradient_bytes);
    // Gloo receives a sliced bucket in memory of its own, which is there until all have arrived.
    if (!cuda_ && dist.shard == Sharding::kOptimizer && bucket.owner == BucketExtent::kSliced)
      received += bucket.gradient_bytes;
  }
  share.summed = share.buckets;
  share.buckets += received;
  if (dist.shard == Sharding::kGradients) {
    // One that is filled, and those under way (GradientExchange::kUnderWay), which Gloo receives elsewhere.
    const double at_once = cuda_ ? 3 : 5;
    share.buckets = std::min(share.buckets, kWide * share.owned + at_once * largest);
    share.summed = std::min(share.summed, kWide * share.owned);
    share.taken_at_once = true;
  }
  planner.share_ = share;
  return planner;
}

MemoryChoice MemoryPlanner::written() const {
  const int64_t logits = train_.micro_batch * length_ * model_.vocab_size * element_;
  return {.micro_batch = train_.micro_batch,
          .accumulate = train_.accumulate,
          .recomputed = model_.recomputed_blocks(),
          .chunked = chunks_head(logits, train_.fused_head)};
}

MemoryPlan MemoryPlanner::plan(const MemoryChoice& choice) const {
  const PassShape shape{choice.micro_batch, length_, element_, /*kernels=*/cuda_ && !ops::plain()};
  const auto activations = activation_memory(model_, shape);
  const auto head = head_memory(model_, shape, choice.chunked, cuda_,
                                train_.precision == Precision::kFp8 && train_.fp8_head);
  const auto P = static_cast<double>(size_.total), e = static_cast<double>(element_),
             table = static_cast<double>(size_.head);

  const double owned = share_ ? share_->owned : P;
  MemoryPlan held;
  held.weights = e * P;
  held.masters = element_ < 4 ? kWide * owned : 0;
  // Muon keeps one moment of the matrices.
  held.moments = 2 * kWide * owned - kWide * (share_ ? share_->owned_matrices : muon_parameters());
  held.gradients = share_ ? share_->buckets : choice.accumulate > 1 ? kWide * P : 0;
  if (!train_.set_to_none) held.gradients += e * P;
  held.working = cuda_ ? kLibraries : 0;

  MemoryPlan most = held;
  const auto consider = [&](double gradients, double kept, double working) {
    MemoryPlan moment = held;
    const bool taken = share_ && share_->taken_at_once && choice.accumulate == 1;
    if (train_.set_to_none)
      moment.gradients += taken ? std::min(gradients, share_->largest_gradient) : gradients;
    moment.activations += kept, moment.working += working;
    if (moment.total() > most.total()) most = moment;
  };

  const auto L = static_cast<int64_t>(activations.blocks.size());
  const auto stored = [&](int64_t layer) {
    const BlockMemory& block = activations.blocks[layer];
    return layer < choice.recomputed ? block.input : block.kept;
  };
  double kept = activations.before + activations.after;
  for (int64_t layer = 0; layer < L; ++layer) kept += stored(layer);
  consider(0, kept, head.forward);
  consider(e * table, kept, head.kept + activations.state);

  kept -= activations.after;
  double gradients = e * table;  // of the head
  for (int64_t layer = L - 1; layer >= 0; --layer) {
    const BlockMemory& block = activations.blocks[layer];
    kept -= stored(layer);
    // A block that is computed again has its output once more, and its input besides what it keeps.
    const double again = layer < choice.recomputed ? activations.state + block.apart : 0;
    consider(gradients, kept + block.kept, block.backward - block.kept + again);
    gradients += e * parameters_of_a_block();
  }
  consider(e * P + (model_.tie_embeddings ? e * table : 0), 0, activations.state);
  // The update reads gradients where they were added up, or those that backward left.
  MemoryPlan update = held;
  if (share_) update.gradients += share_->summed - share_->buckets;
  if (!share_ && choice.accumulate == 1 && train_.set_to_none) update.gradients += e * P;
  update.working +=
      share_ ? share_->update_working : muon_working(muon_matrices(*make_shapes(model_), train_.optimizer));
  if (update.total() > most.total()) most = update;
  return most;
}

std::optional<MemoryChoice> MemoryPlanner::with_checkpointing(MemoryChoice choice, double bytes) const {
  const int64_t most = model_.translates() ? 0 : model_.layers;
  for (choice.recomputed = 0; choice.recomputed <= most; ++choice.recomputed)
    if (plan(choice).total() <= bytes) return choice;
  return {};
}

std::optional<MemoryChoice> MemoryPlanner::advice(double bytes) const {
  const MemoryChoice written = this->written();
  const auto fits = [&](const MemoryChoice& choice) { return plan(choice).total() <= bytes; };
  if (fits(written)) return written;
  std::vector<MemoryChoice> smaller;  // the same rows a step, micro-batches falling
  for (int64_t rows = written.micro_batch; rows >= 1; --rows) {
    if (written.micro_batch % rows) continue;
    smaller.push_back({rows, written.accumulate * (written.micro_batch / rows), 0, true});
  }
  const auto busy = [&](const MemoryChoice& choice) { return choice.micro_batch * length_ >= kBusyTokens; };
  for (const auto& choice : smaller)
    if (busy(choice) && fits(choice)) return choice;
  for (const auto& choice : smaller)
    if (const auto found = with_checkpointing(choice, bytes)) return found;
  return {};
}

}  // namespace tightloop
