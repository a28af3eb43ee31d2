#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "model/files/gguf.h"
#include "model/files/gguf_layout.h"

namespace tightloop {

namespace {

constexpr uint32_t kF32 = 0, kF16 = 1, kQ8 = 8, kBf16 = 30;  // ggml's numbers
constexpr int64_t kBlock = 32;

uint32_t number_of(GgufWeights weights) {
  switch (weights) {
    case GgufWeights::kFp32:
      return kF32;
    case GgufWeights::kBf16:
      return kBf16;
    case GgufWeights::kFp16:
      return kF16;
    case GgufWeights::kQ8_0:
      return kQ8;
  }
  return kF32;
}

at::ScalarType dtype_of(uint32_t number) {
  return number == kF16 ? at::kHalf : number == kBf16 ? at::kBFloat16 : at::kFloat;
}

std::vector<GgufSlot> slots_of(const ModelConfig& config) {
  auto slots = gguf_layout_of(config)->slots(config);
  if (!config.tie_embeddings) slots.push_back({.name = "output.weight", .parameter = "head"});
  return slots;
}

at::Tensor part_of(const LanguageModel& model, const GgufSlot& slot) {
  const auto ours = model.parameters().find(slot.parameter)->value.detach();
  return slot.rows < 0 ? ours : ours.narrow(ours.dim() == 1 ? 0 : -2, slot.begin, slot.rows);
}

/// Rows (head, pair, side) <-> rows (head, side, pair).
at::Tensor reordered(const at::Tensor& rows, int64_t heads, bool to_pairs) {
  const int64_t half = rows.size(0) / heads / 2;
  auto shape = rows.sizes().vec();
  shape[0] = heads;
  shape.insert(shape.begin() + 1,
               to_pairs ? std::initializer_list<int64_t>{2, half} : std::initializer_list<int64_t>{half, 2});
  return rows.reshape(shape).transpose(1, 2).reshape(rows.sizes());
}

/// What the file has, in fp32 where it is quantized. It shares the map.
at::Tensor tensor_of(const GgufFile& file, const GgufTensor& tensor) {
  const std::vector<int64_t> shape(tensor.sizes.rbegin(), tensor.sizes.rend());
  if (tensor.type->number == kQ8) {
    auto values = at::empty(shape, at::kFloat);
    dequantize_q8_0(file.data(tensor), values.numel(), values.mutable_data_ptr<float>());
    return values;
  }
  // Read-only pages: torch must not write to them. Alignment is 8 bytes at the least.
  return at::from_blob(
      const_cast<char*>(file.data(tensor)), shape, [map = file.map()](void*) {},
      dtype_of(tensor.type->number));
}

void check_finite(const at::Tensor& tensor, const GgufFile& file, const std::string& name) {
  if (!at::isfinite(tensor).all().item<bool>())
    throw checkpoint_error(
        "'{}': tensor '{}' holds a NaN or an infinity: the file is damaged, or the training that made it "
        "diverged.",
        file.path().string(), name);
}

/// The type of a slot's tensor where matrices have this one.
const GgmlType* type_of(const GgufSlot& slot, const at::Tensor& part, GgufWeights weights) {
  uint32_t number = number_of(weights);
  if (part.dim() == 1 || slot.fp32) number = kF32;
  if (number == kQ8 && part.size(-1) % kBlock) {
    log::warn("{} has rows of {} values, no multiple of {}: it is stored as fp16, not q8_0.", slot.name,
              part.size(-1), kBlock);
    number = kF16;
  }
  return GgmlType::of(number);
}

void put_tensor(at::Tensor values, const GgmlType& type, const std::string& name, const PutBytes& put) {
  constexpr int64_t kPiece = 1 << 22;  // values
  values = values.flatten();
  for (int64_t at = 0; at < values.numel(); at += kPiece) {
    throw_if_interrupted();
    auto piece = values.narrow(0, at, std::min(kPiece, values.numel() - at)).to(at::kCPU);
    if (type.number != kQ8) {
      piece = piece.to(dtype_of(type.number)).contiguous();
      if (type.number == kF16 && !at::isfinite(piece).all().item<bool>())
        throw checkpoint_error(
            "'{}' has a NaN or a value above 65504, which fp16 cannot hold: use --dtype bf16 or fp32.", name);
      put(piece.const_data_ptr(), piece.nbytes());
      continue;
    }
    piece = piece.to(at::kFloat).contiguous();
    constexpr double kLargest = 127 * 65504.0;  // whose scale fp16 still holds
    if (!(piece.abs().max().item<double>() <= kLargest))
      throw checkpoint_error("'{}' has a NaN or a value above {}, which q8_0 cannot hold: use --dtype fp32.",
                             name, kLargest);
    std::vector<Q8Block> blocks(static_cast<size_t>(piece.numel() / kBlock));
    quantize_q8_0(piece.const_data_ptr<float>(), piece.numel(), blocks.data());
    put(blocks.data(), blocks.size() * sizeof(Q8Block));
  }
}

}  // namespace

void quantize_q8_0(const float* values, int64_t count, Q8Block* blocks) {
  at::parallel_for(0, count / kBlock, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const float* x = values + b * kBlock;
      float largest = 0;
      for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
      const float scale = largest / 127;
      const float inverse = scale != 0 ? 1 / scale : 0;
      blocks[b].scale = c10::Half(scale).x;
      for (int64_t i = 0; i < kBlock; ++i)  // the inverse of a scale near 0 may be infinite
        blocks[b].values[i] = std::isfinite(inverse) ? static_cast<int8_t>(std::round(x[i] * inverse)) : 0;
    }
  });
}

void dequantize_q8_0(const char* blocks, int64_t count, float* values) {
  at::parallel_for(0, count / kBlock, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      Q8Block block;
      std::memcpy(&block, blocks + b * static_cast<int64_t>(sizeof block), sizeof block);
      const float scale = c10::Half(block.scale, c10::Half::from_bits());
      for (int64_t i = 0; i < kBlock; ++i)
        values[b * kBlock + i] = static_cast<float>(block.values[i]) * scale;
    }
  });
}

void import_gguf_weights(const GgufFile& file, LanguageModel& model) {
  c10::NoGradGuard no_grad;
  const std::string path = file.path().string();
  const auto& config = model.config();
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.bytes();
  ProgressLine progress(fmt::format("Reading {}", path), bytes);
  std::set<std::string> known;
  for (const GgufSlot& slot : slots_of(config)) {
    throw_if_interrupted();
    const GgufTensor* found = file.find(slot.name);
    if (!found) throw checkpoint_error("'{}' has no tensor '{}'.", path, slot.name);
    const auto part = part_of(model, slot);
    const std::vector<int64_t> shape(found->sizes.rbegin(), found->sizes.rend());
    if (part.sizes() != at::IntArrayRef(shape))
      throw checkpoint_error("'{}': tensor '{}' has shape [{}], the file's settings make it [{}].", path,
                             slot.name, fmt::join(shape, ", "), fmt::join(part.sizes(), ", "));
    const auto values = tensor_of(file, *found);
    check_finite(values, file, slot.name);
    part.copy_(slot.paired_heads ? reordered(values, slot.paired_heads, /*to_pairs=*/false) : values);
    progress.add(found->bytes());
    known.insert(slot.name);
  }
  if (const auto computed = gguf_layout_of(config)->computed)
    for (const auto& [name, values] : computed(config)) known.insert(name);  // read with the settings
  for (const GgufTensor& tensor : file.tensors())
    if (!known.contains(tensor.name))
      throw checkpoint_error("'{}' has a tensor '{}' that a {} model lacks.", path, tensor.name,
                             config.family);
}

void export_gguf_weights(const LanguageModel& model, GgufWeights weights, const GgufMetadata& metadata,
                         const fs::path& path) {
  c10::NoGradGuard no_grad;
  const ModelConfig& config = model.config();
  require_gguf_layout(config);
  std::vector<GgufTensor> tensors;
  std::vector<std::pair<std::string, std::vector<float>>> computed;
  if (const auto compute = gguf_layout_of(config)->computed) computed = compute(config);
  for (const auto& [name, values] : computed)
    tensors.push_back({name, GgmlType::of(kF32), {static_cast<int64_t>(values.size())}});
  const auto slots = slots_of(config);
  uint64_t total = 0;
  for (const GgufSlot& slot : slots) {
    const auto part = part_of(model, slot);
    tensors.push_back(
        {slot.name, type_of(slot, part, weights), {part.sizes().rbegin(), part.sizes().rend()}});
    total += tensors.back().bytes();
  }
  ProgressLine progress("Writing weights", total);
  write_gguf(path, metadata, tensors, [&](size_t i, const PutBytes& put) {
    if (i < computed.size()) return put(computed[i].second.data(), computed[i].second.size() * sizeof(float));
    const GgufSlot& slot = slots[i - computed.size()];
    const auto part = part_of(model, slot);
    put_tensor(slot.paired_heads ? reordered(part, slot.paired_heads, /*to_pairs=*/true) : part,
               *tensors[i].type, slot.name, [&](const void* bytes, size_t size) {
                 put(bytes, size);
                 progress.add(size);
               });
  });
}

}  // namespace tightloop
