#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// Gradients of weights, computed beside the backward pass. Nothing in that pass waits for them, and those of
/// small products leave most of a GPU idle; so of what its thread computes while this lives, ops::linear
/// differentiates weights on a stream of their own, within a captured graph as a branch of its own. They are
/// where backward() would have left them, in .grad(), after join(). On the CPU, for products that fill a GPU
/// and for blocks that are computed again, nothing changes.
class SideGradients {
 public:
  explicit SideGradients(at::Device device);
  ~SideGradients();  // without join(): they are dropped
  SideGradients(const SideGradients&) = delete;
  SideGradients& operator=(const SideGradients&) = delete;

  /// After backward(): the stream at hand waits for them.
  void join();
};

/// Whether a product's gradients are computed so: it is small, and weight and bias are leaves that learn.
bool side_gradients_take(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias);

/// ops::linear whose weight and bias get their gradients so.
at::Tensor side_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace tightloop::ops
