#include "train/optim/parameter_groups.h"

#include <cmath>
#include <map>

namespace tightloop {

namespace {

using Rules = std::vector<std::unique_ptr<UpdateRule>>;

void add(Group& group, size_t index, const Parameter& parameter, const at::Tensor& master) {
  group.indices.push_back(index);
  group.names.push_back(parameter.name);
  group.masters.push_back(master);
  group.values.push_back(parameter.value);
}

Rules adamw_rules(const Parameters& parameters, const std::vector<at::Tensor>& masters,
                  const TrainConfig& config) {
  Group group{.name = "all"};
  std::vector<bool> decayed;
  for (size_t i = 0; i < masters.size(); ++i) {
    const auto& parameter = parameters.all()[i];
    add(group, i, parameter, masters[i]);
    decayed.push_back(masters[i].dim() >= 2 ||
                      config.decay_vectors);  // matrices and tables, not norms and biases
  }
  Rules rules;
  rules.push_back(
      adamw_rule(group, {config.lr, config.beta1, config.beta2, config.eps, config.weight_decay}, decayed));
  return rules;
}

// nanochat's groups; norms and biases, which it has none of, go with its residual scales, without decay.
AdamWSettings settings_of(ParameterRole role, const TrainConfig& config, double by_width) {
  constexpr double kEps = 1e-10, kSmearRate = 0.2;
  const double embedding = config.embedding_lr * by_width * config.lr_scale,
               head = config.unembedding_lr * by_width * config.lr_scale,
               scalar = config.scalar_lr * config.lr_scale;
  switch (role) {
    case ParameterRole::kHead:
      return {head, 0.8, 0.96, kEps, 0.01};
    case ParameterRole::kEmbedding:
      return {embedding, 0.8, 0.995, kEps, 0.001};
    case ParameterRole::kValueEmbedding:
      return {embedding * 0.5, 0.8, 0.995, kEps, 0.01};
    case ParameterRole::kResidualScale:
      return {scalar * 0.01, 0.8, 0.95, kEps, 0.05};
    case ParameterRole::kInputScale:
      return {scalar, 0.96, 0.95, kEps, 0};
    case ParameterRole::kSmear:
      return {kSmearRate * config.lr_scale, 0.8, 0.95, kEps, 0};
    default:
      return {scalar * 0.01, 0.8, 0.95, kEps, 0};
  }
}

Rules muon_rules(const Parameters& parameters, const std::vector<at::Tensor>& masters,
                 const TrainConfig& config, const ModelConfig& model, at::ScalarType compute_dtype) {
  const double by_width = 1 / std::sqrt(static_cast<double>(model.width) / 768);
  Group matrices{.name = std::string(name_of(ParameterRole::kMatrix))};
  std::vector<std::vector<int64_t>> parts;
  std::map<ParameterRole, Group> others;
  for (size_t i = 0; i < masters.size(); ++i) {
    const auto& parameter = parameters.all()[i];
    const bool matrix = parameter.role == ParameterRole::kMatrix;
    add(matrix ? matrices : others[parameter.role], i, parameter, masters[i]);
    if (matrix) parts.push_back(parameter.parts);
  }
  Rules rules;
  for (auto& [role, group] : others) {
    group.name = name_of(role);
    rules.push_back(adamw_rule(group, settings_of(role, config, by_width),
                               std::vector<bool>(group.indices.size(), true)));
  }
  if (!matrices.indices.empty()) {
    rules.push_back(muon_rule(
        matrices, parts,
        {config.matrix_lr * config.lr_scale, config.muon_beta2, config.muon_weight_decay, compute_dtype}));
  }
  return rules;
}

}  // namespace

Rules make_rules(const Parameters& parameters, const std::vector<at::Tensor>& masters,
                 const TrainConfig& config, const ModelConfig& model, at::ScalarType compute_dtype) {
  if (config.optimizer == OptimizerKind::kMuon)
    return muon_rules(parameters, masters, config, model, compute_dtype);
  return adamw_rules(parameters, masters, config);
}

}  // namespace tightloop
