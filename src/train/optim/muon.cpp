#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <map>

#include "ops/optim/muon.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {

namespace {

using at::Tensor;

/// The matrices inside a parameter (m, n) or (E, m, n), as views.
std::vector<Tensor> matrices_of(const Tensor& parameter, const std::vector<int64_t>& parts) {
  std::vector<Tensor> matrices;
  const Tensor batch = parameter.dim() == 2 ? parameter.unsqueeze(0) : parameter;
  for (const Tensor& one : batch.unbind(0)) {
    int64_t begin = 0;
    for (const int64_t rows : parts) {
      matrices.push_back(one.narrow(0, begin, rows));
      begin += rows;
    }
  }
  return matrices;
}

/// Matrices of one shape, whose products run as one.
struct Stack {
  struct MatrixIndex {
    size_t parameter, matrix;  // in the group, in the parameter
  };
  std::vector<MatrixIndex> indices;
  std::vector<std::string> names;
  ops::MuonTensors tensors;  // views; gradients and values during an update
};

class MuonRule : public UpdateRule {
 public:
  MuonRule(Group group, const std::vector<std::vector<int64_t>>& parts, const ops::MuonSettings& settings)
      : UpdateRule(group.name, settings.lr), group_(std::move(group)), parts_(parts), settings_(settings) {
    std::map<std::pair<int64_t, int64_t>, size_t> by_shape;
    for (size_t i = 0; i < group_.masters.size(); ++i) {
      const auto matrices = matrices_of(group_.masters[i], parts_[i]);
      for (size_t j = 0; j < matrices.size(); ++j) {
        const auto found =
            by_shape.try_emplace({matrices[j].size(0), matrices[j].size(1)}, stacks_.size()).first;
        if (found->second == stacks_.size()) stacks_.emplace_back();
        Stack& stack = stacks_[found->second];
        stack.indices.push_back({i, j});
        stack.tensors.masters.push_back(matrices[j]);
        stack.names.push_back(fmt::format("{}.{}", group_.names[i], j));
      }
    }
    for (auto& [indices, names, tensors] : stacks_) {
      const auto K = static_cast<int64_t>(names.size());
      const int64_t m = tensors.masters[0].size(0), n = tensors.masters[0].size(1);
      const auto options = tensors.masters[0].options();
      tensors.momentum = at::zeros({K, m, n}, options);
      tensors.variance = m >= n ? at::zeros({K, m, 1}, options) : at::zeros({K, 1, n}, options);
    }
  }

  void update(const std::vector<Tensor>& gradients, const Tensor& control, WeightChange* change) override {
    std::vector<std::vector<Tensor>> pieces, values;
    for (size_t i = 0; i < group_.indices.size(); ++i) {
      pieces.push_back(matrices_of(gradients[group_.indices[i]], parts_[i]));
      values.push_back(matrices_of(group_.values[i].detach(), parts_[i]));
    }
    for (auto& [indices, names, tensors] : stacks_) {
      for (const auto& [parameter, matrix] : indices) {
        tensors.gradients.push_back(pieces[parameter][matrix]);
        tensors.values.push_back(values[parameter][matrix]);
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

  NamedTensors state() const override {
    NamedTensors named;
    for (const Stack& stack : stacks_)
      for (size_t i = 0; i < stack.names.size(); ++i) {
        named.emplace_back("momentum." + stack.names[i], stack.tensors.momentum[static_cast<int64_t>(i)]);
        named.emplace_back("variance." + stack.names[i], stack.tensors.variance[static_cast<int64_t>(i)]);
      }
    return named;
  }

 private:
  /// Layer by layer, the matrices of which are neighbours.
  void update_watched(const std::vector<Stack::MatrixIndex>& indices, const ops::MuonTensors& tensors,
                      const Tensor& control, WeightChange& change) const {
    const auto layer_of = [&](size_t i) { return change.layer_of(group_.indices[indices[i].parameter]); };
    const ops::MuonDirection direction = ops::muon_direction(tensors, settings_, control);
    for (size_t first = 0, end = 0; first < indices.size(); first = end) {
      while (end < indices.size() && layer_of(end) == layer_of(first)) ++end;
      const std::vector<Tensor> weights(tensors.masters.begin() + first, tensors.masters.begin() + end);
      change.watch(layer_of(first), weights,
                   [&] { ops::muon_apply_(tensors, direction, settings_, control, first, end); });
    }
  }

  Group group_;
  const std::vector<std::vector<int64_t>> parts_;
  const ops::MuonSettings settings_;
  std::vector<Stack> stacks_;
};

}  // namespace

std::unique_ptr<UpdateRule> muon_rule(Group group, const std::vector<std::vector<int64_t>>& parts,
                                      const ops::MuonSettings& settings) {
  return std::make_unique<MuonRule>(std::move(group), parts, settings);
}

}  // namespace tightloop
