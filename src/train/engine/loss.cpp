#include "train/engine/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress_line.h"
#include "ops/config.h"
#include "ops/linear.h"
#include "ops/loss/fused_head.h"

namespace tightloop {

namespace {

constexpr int64_t kLargeLogits = 128 << 20;  // bytes: where chunks save more memory than they cost time

// Which document each position belongs to. Nothing where it makes no difference: a row is one document, or
// what follows the first one is padding.
std::vector<int32_t> documents_of(const Batch& batch) {
  if (batch.documents <= batch.rows) return {};
  std::vector<int32_t> ids(batch.rows * batch.length);
  bool packed = false;
  for (int64_t document = 0; document < batch.documents; ++document) {
    const int32_t begin = batch.bounds[document], end = batch.bounds[document + 1];
    std::fill(ids.begin() + begin, ids.begin() + end, static_cast<int32_t>(document));
    packed |= begin % batch.length != 0 && std::count(batch.loss_mask + begin, batch.loss_mask + end, 1) > 0;
  }
  return packed ? ids : std::vector<int32_t>();
}

[[noreturn]] void refuse_id(const Batch& batch, int64_t cell, int32_t id, int64_t vocab_size,
                            const std::vector<std::string>& sources) {
  const int64_t row = cell / batch.length;
  const auto source = static_cast<size_t>(batch.sources[row]);
  throw data_error(
      "token id {} at position {} of row {} of micro-batch {} (source {}) is outside of the model's "
      "vocabulary of {}. Was the data made with another tokenizer?",
      id, cell % batch.length, row, batch.index,
      source < sources.size() ? "'" + sources[source] + "'" : std::to_string(source), vocab_size);
}

}  // namespace

Staged stage(const Batch& batch, bool pin) {
  const std::vector<int64_t> shape{batch.rows, batch.length};
  const auto documents = documents_of(batch);
  Staged staged;
  const size_t inputs = staged.layout.add(at::kLong, shape), targets = staged.layout.add(at::kLong, shape),
               sources = staged.layout.add(at::kLong, {batch.rows});
  if (!documents.empty()) staged.layout.add(at::kInt, shape);
  staged.allocate(pin);
  const auto parts = staged.parts();
  const int64_t cells = batch.rows * batch.length;
  std::copy_n(batch.inputs, cells, parts[inputs].mutable_data_ptr<int64_t>());
  auto* wanted = parts[targets].mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < cells; ++i) wanted[i] = batch.loss_mask[i] ? batch.targets[i] : ops::kIgnoreIndex;
  std::copy_n(batch.sources, batch.rows, parts[sources].mutable_data_ptr<int64_t>());
  if (!documents.empty()) std::ranges::copy(documents, parts.back().mutable_data_ptr<int32_t>());
  staged.tokens = cells, staged.supervised = batch.supervised;
  return staged;
}

DeviceBatch device_batch(const std::vector<at::Tensor>& parts) {
  constexpr size_t kInputs = Staged::kFirst;
  return {.inputs_BT = parts[kInputs],
          .targets_BT = parts[kInputs + 1],
          .documents_BT = parts.size() > kInputs + 3 ? parts[kInputs + 3] : at::Tensor(),
          .sources_B = parts[kInputs + 2],
          .random = parts[Staged::kRandom]};
}

DeviceBatch to_device(const Batch& batch, at::Device device) {
  const Staged staged = stage(batch, /*pin=*/device.is_cuda());
  return device_batch(staged.layout.parts(staged.buffer.to(device, /*non_blocking=*/device.is_cuda())));
}

void check_ids(const Batch& batch, int64_t vocab_size, const std::vector<std::string>& sources) {
  const int64_t cells = batch.rows * batch.length;
  const auto outside = [&](int32_t id) {
    return static_cast<uint32_t>(id) >= static_cast<uint32_t>(vocab_size);
  };
  uint32_t found = 0;  // a loop without branches, for the compiler to make vectors of
  for (int64_t i = 0; i < cells; ++i)
    found |= outside(batch.inputs[i]) | (outside(batch.targets[i]) & (batch.loss_mask[i] != 0));
  if (!found) return;
  for (int64_t i = 0; i < cells; ++i) {
    if (outside(batch.inputs[i])) refuse_id(batch, i, batch.inputs[i], vocab_size, sources);
    if (outside(batch.targets[i]) && batch.loss_mask[i])
      refuse_id(batch, i, batch.targets[i], vocab_size, sources);
  }
}

bool chunks_head(int64_t logits_bytes, const std::string& fused_head) {
  if (fused_head == "off" || fused_head == "false" || ops::plain()) return false;
  return fused_head != "auto" || logits_bytes > kLargeLogits;
}

bool chunks_head(const LanguageModel& model, int64_t rows, const std::string& fused_head) {
  const auto weight = model.head().weight_VD;
  return chunks_head(rows * weight.size(0) * weight.element_size(), fused_head);
}

BatchLoss loss_of(LanguageModel& model, const DeviceBatch& batch, const LossSetup& setup) {
  const auto pass = model.forward(
      batch.inputs_BT,
      Pass{.training = setup.training, .documents_BT = batch.documents_BT, .random = batch.random});
  const Head head = model.head();
  const auto wide = head.weight_VD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto scale = setup.scale.defined() ? setup.scale.to(wide) : at::Tensor();
  const ops::LossOptions options{.softcap = head.softcap,
                                 .label_smoothing = setup.label_smoothing,
                                 .z_loss = setup.z_loss,
                                 .scale = scale,
                                 .correct = setup.correct};
  const auto hidden = pass.hidden_BTD.flatten(0, 1), targets = batch.targets_BT.flatten();
  const auto loss = chunks_head(model, hidden.size(0), setup.fused_head)
                        ? ops::fused_head(hidden, head.weight_VD, targets, options)
                        : ops::cross_entropy(ops::linear(hidden, head.weight_VD), targets, options);
  BatchLoss result{loss, pass.balance, pass.expert_loads_LE};
  if (setup.correct) result.counted = targets != ops::kIgnoreIndex, result.sources_B = batch.sources_B;
  return result;
}

HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit) {
  c10::NoGradGuard no_grad;
  HeldOutLoss total;
  auto sum = at::zeros({}, at::TensorOptions(at::kDouble).device(model.device()));
  const int64_t batches = limit > 0 ? std::min(limit, loader.batches()) : loader.batches();
  ProgressLine progress("Held-out data, batches", static_cast<uint64_t>(batches), ProgressLine::Unit::kCount);
  for (int64_t taken = 0; limit == 0 || taken < limit; ++taken) {
    progress.set(static_cast<uint64_t>(taken));
    throw_if_interrupted();
    const Batch* batch = loader.try_next();
    if (!batch) break;
    check_ids(*batch, model.config().vocab_size);
    sum.add_(loss_of(model, to_device(*batch, model.device())).sum);
    total.tokens += batch->supervised;
  }
  if (total.tokens == 0)
    throw data_error("none of the held-out tokens is to be learned: the loss mask is all zero.");
  total.sum = sum.item<double>();
  return total;
}

}  // namespace tightloop
