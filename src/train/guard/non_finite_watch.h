#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "model/files/safetensors.h"

namespace tightloop {

/// The first operator that made values that are not finite out of values that are.
struct FirstNonFinite {
  std::string op;      // "mm", "tightloop::swiglu"
  std::string weight;  // the parameter that it read, or the last one that was read before; empty: none
  bool reads_weight = false;
};

/// Looks at everything that operators called on this thread, and by backward passes that start here, read and
/// write, while it lives: slow, and a sync each. For passes over a micro-batch that went wrong. One lives at
/// a time.
class NonFiniteWatch {
 public:
  /// `weights` are told apart by their memory.
  explicit NonFiniteWatch(const NamedTensors& weights);
  ~NonFiniteWatch();
  NonFiniteWatch(const NonFiniteWatch&) = delete;
  NonFiniteWatch& operator=(const NonFiniteWatch&) = delete;

  std::optional<FirstNonFinite> first() const;

 private:
  uint64_t handle_;
};

/// Values of a floating point tensor that are infinite or NaN. Waits for the device.
int64_t count_non_finite(const at::Tensor& tensor);

}  // namespace tightloop
