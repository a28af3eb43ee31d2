#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tightloop::ops {

/// The documents of a packed batch as stretches of its B * T positions, one after another: what attention
/// needs that goes from document to document instead of hiding the others behind a mask. All layers of a pass
/// share it.
class DocumentBounds {
 public:
  /// int32 (M + 1), on the device: document m covers the positions bounds[m] to bounds[m + 1]. Those at the
  /// end may be empty; there are more of them than documents, so that other batches find the same shapes.
  explicit DocumentBounds(at::Tensor bounds) : bounds_(std::move(bounds)) {}

  /// How many documents a batch is taken to have: one of few numbers, so that batches share captured graphs,
  /// and at most a quarter (or 3) more than there are.
  static int64_t rounded(int64_t documents);

  int64_t documents() const { return bounds_.size(0) - 1; }
  /// int32 (M).
  const at::Tensor& lengths();
  /// int32 (M + 1): where documents begin in a tensor whose positions are `stride` elements apart.
  const at::Tensor& begins(int64_t stride);

 private:
  at::Tensor bounds_, lengths_;
  std::vector<std::pair<int64_t, at::Tensor>> begins_;  // by stride
};

}  // namespace tightloop::ops
