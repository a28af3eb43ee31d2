#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/optim/muon.h"
#include "train/optim/optimizer.h"

namespace tightloop {

/// The parameters of a group: their indices among all, names, fp32 masters, and what the model reads.
struct Group {
  std::string name;  // for people
  std::vector<size_t> indices{};
  std::vector<std::string> names{};
  std::vector<at::Tensor> masters{}, values{};
};

struct AdamWSettings {
  double lr, beta1, beta2, eps, decay;
};
/// `decayed[i]`: whether the weight decay is meant for parameter i of the group.
std::unique_ptr<UpdateRule> adamw_rule(Group group, const AdamWSettings& settings,
                                       const std::vector<bool>& decayed);

/// Muon over matrices (ops/optim/muon.h). `parts[i]` are Parameter::parts of parameter i, each of which is
/// treated by itself, as is each expert's.
std::unique_ptr<UpdateRule> muon_rule(Group group, const std::vector<std::vector<int64_t>>& parts,
                                      const ops::MuonSettings& settings);

/// All rules of a configuration, for parameters whose fp32 masters are given in their order.
std::vector<std::unique_ptr<UpdateRule>> make_rules(const Parameters& parameters,
                                                    const std::vector<at::Tensor>& masters,
                                                    const TrainConfig& config, const ModelConfig& model,
                                                    at::ScalarType compute_dtype);

}  // namespace tightloop
