#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop {

/// Arrays side by side in one buffer, so that one copy moves them all: their dtypes and shapes.
/// Layouts compare by them: batches of one layout have one shape.
class BufferLayout {
 public:
  /// Room for one more array; gives its number.
  size_t add(at::ScalarType dtype, std::vector<int64_t> shape);
  int64_t bytes() const;
  /// The arrays as views of a buffer (uint8, at least bytes() long) on any device.
  std::vector<at::Tensor> parts(const at::Tensor& buffer) const;

  auto operator<=>(const BufferLayout&) const = default;

 private:
  std::vector<std::pair<int8_t, std::vector<int64_t>>> arrays_;  // dtype, shape
};

}  // namespace tightloop
