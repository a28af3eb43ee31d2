#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "model/parts/parameters.h"

namespace tightloop {

/// What norms are told apart by: each block, and each parameter that is in none.
struct LayerNames {
  std::vector<std::string> names{};  // the blocks ("blocks.0", "encoder.0") in their order, then the others
  size_t blocks = 0;
};

/// Which layer each parameter belongs to.
class Layers {
 public:
  explicit Layers(const Parameters& parameters);

  const LayerNames& names() const { return names_; }
  size_t count() const { return names_.names.size(); }
  size_t of(size_t parameter) const { return of_[parameter]; }
  /// The same layers for a list of pieces of parameters, of which these are the parameters.
  Layers of_pieces(const std::vector<size_t>& parameters) const;
  /// The square of the norm of each layer over tensors in the order of the parameters (of the pieces): fp64
  /// (count) on `device`.
  at::Tensor squares(const std::vector<at::Tensor>& tensors, at::Device device) const;
  /// Values in the largest of them.
  int64_t largest(const std::vector<at::Tensor>& tensors) const;

 private:
  LayerNames names_;
  std::vector<size_t> of_;
};

/// Watches one update change the weights. All of it is work for the device; nothing is read back. Weights are
/// copied piece by piece, so that it takes the memory of one layer and not of the model.
class WeightChange {
 public:
  WeightChange(const Layers& layers, at::Device device);

  size_t layer_of(size_t parameter) const { return layers_.of(parameter); }
  /// `change` changes these weights, which are of one layer.
  void watch(size_t layer, const std::vector<at::Tensor>& weights, const std::function<void()>& change);
  /// Squares of norms, fp64 (2, layers): of what weights changed by, and of the weights before.
  const at::Tensor& squares() const { return squares_; }
  /// By layer, the norm of the change over that of the weights before: fp64 (layers).
  at::Tensor ratios() const;

 private:
  const Layers& layers_;
  at::Tensor squares_;
};

}  // namespace tightloop
