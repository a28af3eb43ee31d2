#include "train/optim/layer_norms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "ops/optim/gradient_norm.h"

namespace tightloop {

namespace {

/// "blocks.3" of "blocks.3.attention.qkv"; empty for what is in no block.
std::string block_of(const std::string& parameter) {
  for (size_t dot = parameter.find('.'); dot != parameter.npos;) {
    const size_t end = parameter.find('.', dot + 1);
    const std::string part = parameter.substr(dot + 1, end == parameter.npos ? end : end - dot - 1);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return parameter.substr(0, end);
    dot = end;
  }
  return {};
}

}  // namespace

Layers::Layers(const Parameters& parameters) {
  std::map<std::string, size_t> known;
  const auto add = [&](const std::string& name) {
    const auto [found, fresh] = known.try_emplace(name, names_.names.size());
    if (fresh) names_.names.push_back(name);
    return found->second;
  };
  for (const Parameter& parameter : parameters.all())
    if (const auto block = block_of(parameter.name); !block.empty()) add(block);
  names_.blocks = names_.names.size();
  for (const Parameter& parameter : parameters.all()) {
    const auto block = block_of(parameter.name);
    of_.push_back(add(block.empty() ? parameter.name : block));
  }
}

Layers Layers::of_pieces(const std::vector<size_t>& parameters) const {
  Layers layers = *this;
  layers.of_.clear();
  for (const size_t parameter : parameters) layers.of_.push_back(of(parameter));
  return layers;
}

at::Tensor Layers::squares(const std::vector<at::Tensor>& tensors, at::Device device) const {
  std::vector<std::vector<at::Tensor>> by_layer(count());
  for (size_t i = 0; i < tensors.size(); ++i) by_layer[of(i)].push_back(tensors[i]);
  const at::Tensor none = at::zeros({}, at::TensorOptions(at::kFloat).device(device));
  std::vector<at::Tensor> norms;
  for (const auto& layer : by_layer) norms.push_back(layer.empty() ? none : ops::gradient_norm(layer));
  return at::square(at::stack(norms).to(at::kDouble));
}

int64_t Layers::largest(const std::vector<at::Tensor>& tensors) const {
  std::vector<int64_t> sizes(count());
  for (size_t i = 0; i < tensors.size(); ++i) sizes[of(i)] += tensors[i].numel();
  return *std::ranges::max_element(sizes);
}

WeightChange::WeightChange(const Layers& layers, at::Device device)
    : layers_(layers),
      squares_(at::zeros({2, static_cast<int64_t>(layers.count())},
                         at::TensorOptions(at::kDouble).device(device))) {}

void WeightChange::watch(size_t layer, const std::vector<at::Tensor>& weights,
                         const std::function<void()>& change) {
  std::vector<at::Tensor> copies;
  for (const auto& weight : weights) copies.push_back(weight.clone());
  const at::Tensor before = ops::gradient_norm(copies);
  change();
  at::_foreach_sub_(copies, weights);
  const at::Tensor norms = at::stack({ops::gradient_norm(copies), before}).to(at::kDouble);
  squares_.select(1, static_cast<int64_t>(layer)).add_(at::square(norms));
}

at::Tensor WeightChange::ratios() const { return at::sqrt(squares_[0] / squares_[1]); }

}  // namespace tightloop
