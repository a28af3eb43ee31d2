#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop {

/// Arrays that lie side by side in one buffer, so that one copy moves them all: their dtypes and shapes.
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

/// One micro-batch on the host, ready for its copy to the device. Every kind of batch starts with the same
/// two arrays: StepNumbers (fp64), and a number for dropout to draw from (an int64 scalar).
struct Staged {
  static constexpr size_t kNumbers = 0, kRandom = 1, kFirst = 2;

  BufferLayout layout;
  at::Tensor buffer{};     // uint8, pinned where a GPU reads it
  int64_t index = 0;       // which micro-batch of the run it is, from 0
  int64_t tokens = 0;      // positions
  int64_t supervised = 0;  // of which are learned from
  double epoch = 0;        // passes over the data when it ends

  /// With the two common arrays.
  Staged();
  /// Takes memory for all arrays that were added, pinned for a GPU; they are written through parts(). The
  /// common ones start as zeros.
  void allocate(bool pin);
  std::vector<at::Tensor> parts() const { return layout.parts(buffer); }
  /// Writes the common ones.
  void set(const std::vector<double>& numbers, int64_t random);
};

}  // namespace tightloop
