#include "train/loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tightloop {

namespace {

// A copy through torch's own pinned memory, which knows when the device has read it.
at::Tensor copy_of(const void* data, at::IntArrayRef shape, at::ScalarType type, at::Device device,
                   bool pin) {
  auto staged = at::empty(shape, at::TensorOptions(type).pinned_memory(pin && device.is_cuda()));
  std::memcpy(staged.mutable_data_ptr(), data, staged.nbytes());
  return staged.to(device, type, /*non_blocking=*/pin);
}

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

}  // namespace

DeviceBatch to_device(const Batch& batch, at::Device device, bool pin_memory) {
  const std::vector<int64_t> shape{batch.rows, batch.length};
  const auto inputs = copy_of(batch.inputs, shape, at::kInt, device, pin_memory);
  const auto targets = copy_of(batch.targets, shape, at::kInt, device, pin_memory);
  const auto mask = copy_of(batch.loss_mask, shape, at::kByte, device, pin_memory);
  const auto documents = documents_of(batch);
  return {inputs.to(at::kLong), targets.to(at::kLong).masked_fill_(mask.eq(0), ops::kIgnoreIndex),
          documents.empty() ? at::Tensor() : copy_of(documents.data(), shape, at::kInt, device, pin_memory)};
}

ops::LossSum loss_of(LanguageModel& model, const DeviceBatch& batch) {
  const auto logits =
      model.logits(model.forward(batch.inputs_BT, {.documents_BT = batch.documents_BT}).hidden_BTD);
  return ops::cross_entropy(logits.flatten(0, 1), batch.targets_BT.flatten());
}

HeldOutLoss held_out_loss(LanguageModel& model, Loader& loader, int64_t limit) {
  c10::NoGradGuard no_grad;
  HeldOutLoss total;
  auto sum = at::zeros({}, at::TensorOptions(at::kDouble).device(model.device()));
  for (int64_t taken = 0; limit == 0 || taken < limit; ++taken) {
    const Batch* batch = loader.try_next();
    if (!batch) break;
    sum.add_(loss_of(model, to_device(*batch, model.device())).sum);
    total.tokens += batch->supervised;
  }
  total.sum = sum.item<double>();
  return total;
}

}  // namespace tightloop
