#include "train/engine/buffer_layout.h"

namespace tightloop {

namespace {

constexpr int64_t kAlignment = 64;

int64_t bytes_of(int8_t dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(dtype)));
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

size_t BufferLayout::add(at::ScalarType dtype, std::vector<int64_t> shape) {
  arrays_.emplace_back(static_cast<int8_t>(dtype), std::move(shape));
  return arrays_.size() - 1;
}

int64_t BufferLayout::bytes() const {
  int64_t total = 0;
  for (const auto& [dtype, shape] : arrays_) total += aligned(bytes_of(dtype, shape));
  return total;
}

std::vector<at::Tensor> BufferLayout::parts(const at::Tensor& buffer) const {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const auto& [dtype, shape] : arrays_) {
    const int64_t bytes = bytes_of(dtype, shape);
    parts.push_back(buffer.narrow(0, begin, bytes).view(static_cast<at::ScalarType>(dtype)).view(shape));
    begin += aligned(bytes);
  }
  return parts;
}

}  // namespace tightloop
