#include "train/engine/loss.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

#include "core/interrupt.h"
#include "core/terminal/progress_line.h"
#include "ops/config.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/loss/fused_head.h"
#include "ops/quantized_linear.h"
#include "train/engine/held_out_sums.h"

namespace tightloop {

namespace {

constexpr int64_t kLargeLogits = 128 << 20;  // bytes: where chunks save more memory than they cost time

}  // namespace

bool chunks_head(int64_t logits_bytes, AutoSwitch fused_head) {
  if (fused_head == AutoSwitch::kOff || ops::plain()) return false;
  return fused_head != AutoSwitch::kAuto || logits_bytes > kLargeLogits;
}

bool chunks_head(const LanguageModel& model, int64_t rows, AutoSwitch fused_head) {
  const auto weight = model.head().weight_VD;
  return chunks_head(rows * weight.size(0) * weight.element_size(), fused_head);
}

BatchLoss loss_of(LanguageModel& model, const DeviceBatch& batch, const LossSetup& setup) {
  const auto pass = model.forward(batch.inputs_BT, Pass{.training = setup.training,
                                                        .documents_BT = batch.documents_BT,
                                                        .document_bounds = batch.document_bounds,
                                                        .random = batch.random});
  Head head = model.used_head();
  if (ops::is_quantized(head.weight_VD))  // many rows share it
    head.weight_VD = ops::dequantize(head.weight_VD, pass.hidden_BTD.size(-1), pass.hidden_BTD.scalar_type());
  const auto wide = head.weight_VD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto scale = setup.scale.defined() ? setup.scale.to(wide) : at::Tensor();
  const ops::LossOptions options{.softcap = head.softcap,
                                 .label_smoothing = setup.label_smoothing,
                                 .z_loss = setup.z_loss,
                                 .scale = scale,
                                 .correct = setup.correct};
  const auto hidden = pass.hidden_BTD.flatten(0, 1), targets = batch.targets_BT.flatten();
  std::optional<ops::WithoutFp8> in_16_bits;
  if (!setup.fp8_head || ops::plain()) in_16_bits.emplace();
  const auto loss = chunks_head(model, hidden.size(0), setup.fused_head)
                        ? ops::fused_head(hidden, head.weight_VD, targets, options)
                        : ops::cross_entropy(ops::linear(hidden, head.weight_VD), targets, options);
  BatchLoss result{loss, pass.balance, pass.expert_loads_LE};
  if (setup.correct) result.counted = targets != ops::kIgnoreIndex, result.sources_B = batch.sources_B;
  return result;
}

HeldOutSums held_out_sums(LanguageModel& model, Loader& loader, int64_t limit) {
  c10::NoGradGuard no_grad;
  const int64_t all = loader.batches() * loader.world(), batches = limit > 0 ? std::min(limit, all) : all;
  HeldOutSums sums(batches, model.device());
  std::optional<ProgressLine> progress;  // of one process, for all
  if (loader.part(0) == 0)
    progress.emplace("Held-out data, batches", static_cast<uint64_t>(batches), ProgressLine::Unit::kCount);
  while (const Batch* batch = loader.try_next()) {
    const int64_t part = loader.part(batch->index);
    if (part >= batches) break;
    throw_if_interrupted();
    if (progress) progress->set(static_cast<uint64_t>(part));
    check_ids(*batch, model.config().vocab_size);
    if (batch->supervised == 0) continue;
    const auto loss = loss_of(model, to_device(*batch, model.device()), {.correct = true});
    sums.add(part, loss.sum, loss.correct.logical_and(loss.counted).sum(), batch->supervised, batch->bytes);
  }
  return sums;
}

HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit) {
  return held_out_sums(model, loader, limit).total();
}

}  // namespace tightloop
