#include "train/optim/parameter_groups.h"

#include <cmath>
#include <map>

namespace tightloop {

namespace {

using Rules = std::vector<std::unique_ptr<UpdateRule>>;

void add(Group& group, size_t index, const Parameters& parameters, const OwnWeights& own) {
  const ParameterPiece& piece = own.pieces[index];
  const Parameter& parameter = parameters.all()[piece.parameter];
  group.indices.push_back(index);
  group.pieces.push_back({parameter.name, parameter.value.sizes().vec(), piece.begin});
  group.masters.push_back(own.masters[index]);
  group.values.push_back(own.values[index]);
}

Rules adamw_rules(const Parameters& parameters, const OwnWeights& own, const TrainConfig& config) {
  Group group{.name = "all"};
  std::vector<bool> decayed;
  for (size_t i = 0; i < own.pieces.size(); ++i) {
    add(group, i, parameters, own);
    // Matrices and tables, not norms and biases.
    decayed.push_back(group.pieces.back().sizes.size() >= 2 || config.decay_vectors);
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

Rules muon_rules(const Parameters& parameters, const OwnWeights& own, const TrainConfig& config,
                 const ModelConfig& model, at::ScalarType compute_dtype) {
  const double by_width = 1 / std::sqrt(static_cast<double>(model.width) / 768);
  Group matrices{.name = std::string(name_of(ParameterRole::kMatrix))};
  std::vector<std::vector<PlannedParameter::Matrix>> shapes;
  std::map<ParameterRole, Group> others;
  bool any_matrix = false;
  // A process may have nothing of a group, which is there all the same.
  for (const auto& parameter : parameters.all()) {
    if (takes_muon(parameter, config))
      any_matrix = true;
    else
      others[parameter.role];
  }
  for (size_t i = 0; i < own.pieces.size(); ++i) {
    const Parameter& parameter = parameters.all()[own.pieces[i].parameter];
    const bool matrix = takes_muon(parameter, config);
    add(matrix ? matrices : others[parameter.role], i, parameters, own);
    if (matrix) shapes.push_back(matrices_in(parameter));
  }
  Rules rules;
  for (auto& [role, group] : others) {
    group.name = name_of(role);
    rules.push_back(adamw_rule(group, settings_of(role, config, by_width),
                               std::vector<bool>(group.indices.size(), true)));
  }
  if (any_matrix) {
    rules.push_back(muon_rule(
        matrices, shapes,
        {config.matrix_lr * config.lr_scale, config.muon_beta2, config.muon_weight_decay, compute_dtype}));
  }
  return rules;
}

}  // namespace

bool takes_muon(const Parameter& parameter, const TrainConfig& config) {
  return config.optimizer == OptimizerKind::kMuon && parameter.role == ParameterRole::kMatrix;
}

std::vector<PlannedParameter::Matrix> matrices_in(const Parameter& parameter) {
  const at::IntArrayRef sizes = parameter.value.sizes();
  std::vector<PlannedParameter::Matrix> matrices;
  for (int64_t i = 0; i < (sizes.size() == 3 ? sizes[0] : 1); ++i)
    for (const int64_t rows : parameter.parts) matrices.push_back({rows, sizes.back()});
  return matrices;
}

Rules make_rules(const Parameters& parameters, const OwnWeights& own, const TrainConfig& config,
                 const ModelConfig& model, at::ScalarType compute_dtype) {
  if (config.optimizer == OptimizerKind::kMuon)
    return muon_rules(parameters, own, config, model, compute_dtype);
  return adamw_rules(parameters, own, config);
}

}  // namespace tightloop
