#include "train/engine/staging.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/error.h"
#include "ops/attention/document_bounds.h"
#include "ops/loss/cross_entropy.h"
#include "train/engine/step_numbers.h"

namespace tightloop {

namespace {

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

struct IdAt {
  int32_t id;
  int64_t position, row, micro_batch;
};

[[noreturn]] void refuse_id(const IdAt& at, int64_t vocab_size, const RowOrigin& origin) {
  throw data_error(
      "token id {} at position {} of row {} of micro-batch {}{} is outside of the model's vocabulary of {}. "
      "Was the data made with another tokenizer?",
      at.id, at.position, at.row, at.micro_batch, origin ? " (" + origin(at.row) + ")" : "", vocab_size);
}

bool outside(int32_t id, int64_t vocab_size) {
  return static_cast<uint32_t>(id) >= static_cast<uint32_t>(vocab_size);
}

}  // namespace

Staged::Staged() {
  layout.add(at::kDouble, {StepNumbers::kSize});
  layout.add(at::kLong, {});
}

void Staged::allocate(bool pin) {
  buffer = at::empty({layout.bytes()}, at::TensorOptions(at::kByte).pinned_memory(pin));
  set(std::vector<double>(StepNumbers::kSize), 0);
}

void Staged::set(const std::vector<double>& numbers, int64_t random) {
  const auto all = parts();
  std::ranges::copy(numbers, all[kNumbers].mutable_data_ptr<double>());
  *all[kRandom].mutable_data_ptr<int64_t>() = random;
}

Staged stage(const Batch& batch, bool pin) {
  const std::vector<int64_t> shape{batch.rows, batch.length};
  const auto documents = documents_of(batch);
  Staged staged;
  const size_t inputs = staged.layout.add(at::kLong, shape), targets = staged.layout.add(at::kLong, shape),
               sources = staged.layout.add(at::kLong, {batch.rows});
  if (!documents.empty()) {
    staged.layout.add(at::kInt, shape);
    staged.layout.add(at::kInt, {ops::DocumentBounds::rounded(batch.documents) + 1});
  }
  staged.allocate(pin);
  const auto parts = staged.parts();
  const int64_t cells = batch.rows * batch.length;
  std::copy_n(batch.inputs, cells, parts[inputs].mutable_data_ptr<int64_t>());
  auto* wanted = parts[targets].mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < cells; ++i) wanted[i] = batch.loss_mask[i] ? batch.targets[i] : ops::kIgnoreIndex;
  std::copy_n(batch.sources, batch.rows, parts[sources].mutable_data_ptr<int64_t>());
  if (!documents.empty()) {
    std::ranges::copy(documents, parts[sources + 1].mutable_data_ptr<int32_t>());
    auto* bounds = parts[sources + 2].mutable_data_ptr<int32_t>();
    std::fill(std::copy_n(batch.bounds, batch.documents + 1, bounds), bounds + parts[sources + 2].numel(),
              static_cast<int32_t>(cells));
  }
  staged.tokens = cells, staged.supervised = batch.supervised, staged.bytes = batch.bytes;
  return staged;
}

DeviceBatch device_batch(const std::vector<at::Tensor>& parts) {
  constexpr size_t kInputs = Staged::kFirst;
  const bool packed = parts.size() > kInputs + 3;
  return {.inputs_BT = parts[kInputs],
          .targets_BT = parts[kInputs + 1],
          .documents_BT = packed ? parts[kInputs + 3] : at::Tensor(),
          .document_bounds = packed ? parts[kInputs + 4] : at::Tensor(),
          .sources_B = parts[kInputs + 2],
          .random = parts[Staged::kRandom]};
}

DeviceBatch to_device(const Batch& batch, at::Device device) {
  const Staged staged = stage(batch, /*pin=*/device.is_cuda());
  return device_batch(staged.layout.parts(staged.buffer.to(device, /*non_blocking=*/device.is_cuda())));
}

void check_ids(const Batch& batch, int64_t vocab_size, const RowOrigin& origin) {
  const int64_t cells = batch.rows * batch.length;
  uint32_t found = 0;  // a loop without branches, for the compiler to make vectors of
  for (int64_t i = 0; i < cells; ++i)
    found |= outside(batch.inputs[i], vocab_size) |
             (outside(batch.targets[i], vocab_size) & (batch.loss_mask[i] != 0));
  if (!found) return;
  for (int64_t i = 0; i < cells; ++i) {
    const auto refuse = [&](int32_t id) {
      refuse_id({id, i % batch.length, i / batch.length, batch.index}, vocab_size, origin);
    };
    if (outside(batch.inputs[i], vocab_size)) refuse(batch.inputs[i]);
    if (outside(batch.targets[i], vocab_size) && batch.loss_mask[i]) refuse(batch.targets[i]);
  }
}

void check_ids(const PairBatch& batch, int64_t source_vocab, int64_t target_vocab, const RowOrigin& origin) {
  const auto check = [&](const int32_t* ids, int64_t length, const int32_t* lengths, int64_t vocab_size) {
    for (int64_t row = 0; row < batch.rows; ++row)
      for (int64_t t = 0; t < lengths[row]; ++t)
        if (const int32_t id = ids[row * length + t]; outside(id, vocab_size))
          refuse_id({id, t, row, batch.index}, vocab_size, origin);
  };
  check(batch.source, batch.source_length, batch.source_lengths, source_vocab);
  check(batch.inputs, batch.target_length, batch.target_lengths, target_vocab);
  check(batch.targets, batch.target_length, batch.target_lengths, target_vocab);
}

Staged stage(const PairBatch& batch, int64_t rows, bool pin) {
  const int64_t S = batch.source_length, T = batch.target_length;
  Staged staged;
  const size_t first = staged.layout.add(at::kLong, {rows, S});
  staged.layout.add(at::kLong, {rows});
  staged.layout.add(at::kLong, {rows, T});
  staged.layout.add(at::kLong, {rows, T});
  staged.allocate(pin);
  const auto parts = staged.parts();
  const auto fill = [&](size_t part, const int32_t* from, int64_t count, int64_t rest) {
    auto* to = parts[first + part].mutable_data_ptr<int64_t>();
    std::fill(std::copy_n(from, count, to), to + parts[first + part].numel(), rest);
  };
  fill(0, batch.source, batch.rows * S, 0);
  fill(1, batch.source_lengths, batch.rows, 1);
  fill(2, batch.inputs, batch.rows * T, 0);
  fill(3, batch.targets, batch.rows * T, ops::kIgnoreIndex);
  auto* targets = parts[first + 3].mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < batch.rows; ++row)
    std::fill(targets + row * T + batch.target_lengths[row], targets + (row + 1) * T, ops::kIgnoreIndex);
  staged.tokens = rows * T, staged.supervised = batch.supervised;
  return staged;
}

DevicePairs device_pairs(const std::vector<at::Tensor>& parts) {
  constexpr size_t kFirst = Staged::kFirst;
  return {parts[kFirst], parts[kFirst + 1], parts[kFirst + 2], parts[kFirst + 3], parts[Staged::kRandom]};
}

DevicePairs to_device(const PairBatch& batch, at::Device device) {
  const Staged staged = stage(batch, batch.rows, /*pin=*/device.is_cuda());
  return device_pairs(staged.layout.parts(staged.buffer.to(device, /*non_blocking=*/device.is_cuda())));
}

}  // namespace tightloop
