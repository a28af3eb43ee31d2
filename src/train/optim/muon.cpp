#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <map>

#include "ops/optim/muon.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {

namespace {

using at::Tensor;

/// A matrix of a piece: which one of its parameter, and where.
struct MatrixPlace {
  size_t matrix;
  int64_t offset, rows, columns;  // offset in the piece

  /// As a view of the piece's tensor, which is dense.
  Tensor in(const Tensor& piece) const {
    return piece.view({-1}).narrow(0, offset, rows * columns).view({rows, columns});
  }
};

std::vector<MatrixPlace> matrices_of(const std::vector<PlannedParameter::Matrix>& shapes, int64_t begin,
                                     int64_t size) {
  std::vector<MatrixPlace> places;
  int64_t at = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto [rows, columns] = shapes[i];
    if (at >= begin && at < begin + size) places.push_back({i, at - begin, rows, columns});
    at += rows * columns;
  }
  return places;
}

/// Matrices of one shape, whose products run as one.
struct Stack {
  struct MatrixIndex {
    size_t piece;  // in the group
    MatrixPlace place;
  };
  std::vector<MatrixIndex> indices;
  ops::MuonTensors tensors;  // views; gradients and values during an update
};

class MuonRule : public UpdateRule {
 public:
  MuonRule(Group group, const std::vector<std::vector<PlannedParameter::Matrix>>& shapes,
           const ops::MuonSettings& settings)
      : UpdateRule(group.name, settings.lr), group_(std::move(group)), settings_(settings) {
    std::map<std::pair<int64_t, int64_t>, size_t> by_shape;
    for (size_t i = 0; i < group_.masters.size(); ++i) {
      const Tensor& master = group_.masters[i];
      for (const auto& place : matrices_of(shapes[i], group_.pieces[i].begin, master.numel())) {
        const auto found = by_shape.try_emplace({place.rows, place.columns}, stacks_.size()).first;
        if (found->second == stacks_.size()) stacks_.emplace_back();
        Stack& stack = stacks_[found->second];
        stack.indices.push_back({i, place});
        stack.tensors.masters.push_back(place.in(master));
      }
    }
    for (auto& [indices, tensors] : stacks_) {
      const auto K = static_cast<int64_t>(indices.size());
      const int64_t m = tensors.masters[0].size(0), n = tensors.masters[0].size(1);
      const auto options = tensors.masters[0].options();
      tensors.momentum = at::zeros({K, m, n}, options);
      tensors.variance = m >= n ? at::zeros({K, m, 1}, options) : at::zeros({K, 1, n}, options);
    }
  }

  void update(const std::vector<Tensor>& gradients, const Tensor& control, WeightChange* change) override {
    for (auto& [indices, tensors] : stacks_) {
      for (const auto& [piece, place] : indices) {
        tensors.gradients.push_back(place.in(gradients[group_.indices[piece]].contiguous()));
        tensors.values.push_back(place.in(group_.values[piece].detach()));
      }
      if (change) {
        update_watched(indices, tensors, control, *change);
      } else {
        ops::muon_(tensors, settings_, control);
      }
      tensors.gradients.clear(), tensors.values.clear();
    }
  }

  void reserve() const override {
    for (const Stack& stack : stacks_) ops::muon_reserve(stack.tensors, settings_);
  }

  std::vector<StateSlice> state() const override {
    std::vector<StateSlice> slices;
    for (const auto& [indices, tensors] : stacks_)
      for (size_t i = 0; i < indices.size(); ++i) {
        const auto& [piece, place] = indices[i];
        const auto name = fmt::format("{}.{}", group_.pieces[piece].name, place.matrix);
        slices.push_back(whole_slice("momentum." + name, tensors.momentum[static_cast<int64_t>(i)]));
        slices.push_back(whole_slice("variance." + name, tensors.variance[static_cast<int64_t>(i)]));
      }
    return slices;
  }

 private:
  /// Layer by layer, the matrices of which are neighbours.
  void update_watched(const std::vector<Stack::MatrixIndex>& indices, const ops::MuonTensors& tensors,
                      const Tensor& control, WeightChange& change) const {
    const auto layer_of = [&](size_t i) { return change.layer_of(group_.indices[indices[i].piece]); };
    const ops::MuonDirection direction = ops::muon_direction(tensors, settings_, control);
    for (size_t first = 0, end = 0; first < indices.size(); first = end) {
      while (end < indices.size() && layer_of(end) == layer_of(first)) ++end;
      const std::vector<Tensor> weights(tensors.masters.begin() + first, tensors.masters.begin() + end);
      change.watch(layer_of(first), weights,
                   [&] { ops::muon_apply_(tensors, direction, settings_, control, first, end); });
    }
  }

  Group group_;
  const ops::MuonSettings settings_;
  std::vector<Stack> stacks_;
};

}  // namespace

std::unique_ptr<UpdateRule> muon_rule(Group group,
                                      const std::vector<std::vector<PlannedParameter::Matrix>>& shapes,
                                      const ops::MuonSettings& settings) {
  return std::make_unique<MuonRule>(std::move(group), shapes, settings);
}

}  // namespace tightloop
