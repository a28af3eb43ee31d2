#include "train/engine/pair_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "ops/config.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/loss/fused_head.h"
#include "train/engine/held_out_sums.h"

namespace tightloop {

namespace {

ops::LossSum cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const PairLossSetup& setup, double label_smoothing, const at::Tensor& scale) {
  const ops::LossOptions options{
      .label_smoothing = label_smoothing, .scale = scale, .correct = setup.correct};
  const int64_t logits_bytes = hidden.size(0) * weight.size(0) * weight.element_size();
  std::optional<ops::WithoutFp8> in_16_bits;
  if (!setup.fp8_head || ops::plain()) in_16_bits.emplace();
  if (chunks_head(logits_bytes, setup.fused_head)) return ops::fused_head(hidden, weight, targets, options);
  return ops::cross_entropy(ops::linear(hidden, weight), targets, options);
}

}  // namespace

// With u = e / (V - 2) the divergence is
//   sum_j q_j log q_j - (1 - e) log p_y - u sum_{j != y, pad} log p_j
// and, since the weights sum to 1, the middle is a cross entropy with usual smoothing e V / (V - 2) plus
// u (z_pad - z_y), z the logits. So the operators that never hold all logits serve here too.
ops::LossSum smoothed_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const PairLossSetup& setup) {
  const double e = setup.label_smoothing;
  const auto wide = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto scale = setup.scale.defined() ? setup.scale.to(wide) : at::Tensor();
  if (setup.smoothing == Smoothing::kUniform) return cross_entropy(hidden, weight, targets, setup, e, scale);
  const auto V = static_cast<double>(weight.size(0));
  TORCH_CHECK(V > 2 && e * V / (V - 2) < 1, "label smoothing of ", e, " is too much for a vocabulary of ", V);
  auto loss = cross_entropy(hidden, weight, targets, setup, e * V / (V - 2), scale);
  if (e == 0) return loss;
  const double u = e / (V - 2), entropy = (1 - e) * std::log(1 - e) + e * std::log(u);
  const auto counted = targets != ops::kIgnoreIndex;
  const auto of_target = at::embedding(weight, targets.masked_fill(counted.logical_not(), setup.pad_id));
  const auto apart = (weight[setup.pad_id] - of_target).to(wide);
  // Where the target is the padding itself this is 0, and so are rows that do not count.
  const auto extra = (hidden.to(wide) * apart).sum(-1) * u;
  const auto constant = counted * entropy;
  const auto added = extra.sum() + constant.sum();
  loss.objective = loss.objective + (scale.defined() ? added * scale : added);
  loss.sum = loss.sum + added.detach();
  loss.losses = loss.losses + extra.detach() + constant;
  return loss;
}

ops::LossSum pair_loss(Seq2Seq& model, const DevicePairs& batch, const PairLossSetup& setup) {
  if (model.config().softcap != 0) throw usage_error("model.softcap is not for seq2seq: leave it out.");
  const Pass pass{.training = setup.training, .random = setup.random};
  const auto memory = model.encode(batch.source_BS, batch.source_lengths_B, pass);
  const auto hidden = model.decode(batch.inputs_BT, memory, pass);
  return smoothed_loss(hidden.flatten(0, 1), model.head().weight_VD, batch.targets_BT.flatten(), setup);
}

HeldOutSums held_out_sums(Seq2Seq& model, PairLoader& loader) {
  c10::NoGradGuard no_grad;
  const int64_t batches = loader.batches() * loader.world();
  HeldOutSums sums(batches, model.device());
  std::optional<ProgressLine> progress;  // of one process, for all
  if (loader.part(0) == 0)
    progress.emplace("Held-out data, batches", static_cast<uint64_t>(batches), ProgressLine::Unit::kCount);
  while (const PairBatch* batch = loader.try_next()) {
    throw_if_interrupted();
    const int64_t part = loader.part(batch->index);
    if (progress) progress->set(static_cast<uint64_t>(part));
    if (batch->supervised == 0) continue;  // none left for this process
    const DevicePairs pairs = to_device(*batch, model.device());
    const auto loss = pair_loss(model, pairs, {.correct = true});
    sums.add(part, loss.sum, loss.correct.logical_and(pairs.targets_BT.flatten() != ops::kIgnoreIndex).sum(),
             batch->supervised, /*bytes=*/0);
  }
  return sums;
}

HeldOutLoss held_out_loss(Seq2Seq& model, PairLoader& loader) { return held_out_sums(model, loader).total(); }

}  // namespace tightloop
