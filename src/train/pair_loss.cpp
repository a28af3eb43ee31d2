#include "train/pair_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "ops/config.h"
#include "ops/fused_head.h"

namespace tightloop {

namespace {

constexpr int64_t kLargeLogits = 128 << 20;  // bytes: where chunks save more memory than they cost time

at::Tensor copy_of(const int32_t* data, at::IntArrayRef shape, at::Device device, bool pin) {
  auto staged = at::empty(shape, at::TensorOptions(at::kInt).pinned_memory(pin && device.is_cuda()));
  std::memcpy(staged.mutable_data_ptr(), data, staged.nbytes());
  return staged.to(device, at::kInt, /*non_blocking=*/pin).to(at::kLong);
}

bool in_chunks(const at::Tensor& hidden, const at::Tensor& weight, const std::string& fused_head) {
  if (fused_head == "off" || fused_head == "false" || ops::plain()) return false;
  return fused_head != "auto" || hidden.size(0) * weight.size(0) * weight.element_size() > kLargeLogits;
}

ops::LossSum cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           double label_smoothing, const std::string& fused_head) {
  const ops::LossOptions options{.label_smoothing = label_smoothing};
  if (in_chunks(hidden, weight, fused_head)) return ops::fused_head(hidden, weight, targets, options);
  return ops::cross_entropy(at::linear(hidden, weight), targets, options);
}

}  // namespace

DevicePairs to_device(const PairBatch& batch, at::Device device, bool pin_memory) {
  const auto copy = [&](const int32_t* data, std::vector<int64_t> shape) {
    return copy_of(data, shape, device, pin_memory);
  };
  const auto lengths = copy(batch.target_lengths, {batch.rows});
  auto targets = copy(batch.targets, {batch.rows, batch.target_length});
  targets.masked_fill_(at::arange(batch.target_length, lengths.options()) >= lengths.unsqueeze(1),
                       ops::kIgnoreIndex);
  return {copy(batch.source, {batch.rows, batch.source_length}), copy(batch.source_lengths, {batch.rows}),
          copy(batch.inputs, {batch.rows, batch.target_length}), targets};
}

// With u = e / (V - 2) the divergence is
//   sum_j q_j log q_j - (1 - e) log p_y - u sum_{j != y, pad} log p_j
// and, since the weights sum to 1, the middle is a cross entropy with usual smoothing e V / (V - 2) plus
// u (z_pad - z_y), z the logits. So the operators that never hold all logits serve here too.
ops::LossSum smoothed_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const PairLossSetup& setup) {
  const double e = setup.label_smoothing;
  if (setup.smoothing == Smoothing::kUniform)
    return cross_entropy(hidden, weight, targets, e, setup.fused_head);
  const auto V = static_cast<double>(weight.size(0));
  TORCH_CHECK(V > 2 && e * V / (V - 2) < 1, "label smoothing of ", e, " is too much for a vocabulary of ", V);
  auto loss = cross_entropy(hidden, weight, targets, e * V / (V - 2), setup.fused_head);
  if (e == 0) return loss;
  const double u = e / (V - 2), entropy = (1 - e) * std::log(1 - e) + e * std::log(u);
  const auto counted = targets != ops::kIgnoreIndex;
  const auto of_target = at::embedding(weight, targets.masked_fill(counted.logical_not(), setup.pad_id));
  const auto apart = (weight[setup.pad_id] - of_target).to(loss.sum.scalar_type());
  // Where the target is the padding itself this is 0, and so are rows that do not count.
  const auto extra = (hidden.to(apart.scalar_type()) * apart).sum(-1) * u;
  loss.sum = loss.sum + extra.sum() + loss.count * entropy;
  loss.losses = loss.losses + extra.detach() + counted * entropy;
  return loss;
}

ops::LossSum pair_loss(Seq2Seq& model, const DevicePairs& batch, const PairLossSetup& setup) {
  if (model.config().softcap != 0) throw usage_error("model.softcap is not for seq2seq: leave it out.");
  const Pass pass{.training = setup.training, .random = setup.random};
  const auto memory = model.encode(batch.source_BS, batch.source_lengths_B, pass);
  const auto hidden = model.decode(batch.inputs_BT, memory, pass);
  return smoothed_loss(hidden.flatten(0, 1), model.head().weight_VD, batch.targets_BT.flatten(), setup);
}

}  // namespace tightloop
