#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/optim/muon.h"
#include "train/optim/optimizer.h"
#include "train/optim/shard_plan.h"
#include "train/optim/state_slice.h"

namespace tightloop {

/// What this process updates of a parameter: all of it, or where the state is sharded, a stretch.
struct GroupPiece {
  std::string name;            // of the parameter
  std::vector<int64_t> sizes;  // of the parameter
  int64_t begin = 0;

  /// A tensor of the same stretch, as checkpoints know it.
  StateSlice slice(const char* kind, const at::Tensor& values) const {
    return {kind + name, sizes, begin, values};
  }
};

/// The weights of a group: their indices among all that this process updates, fp32 masters, and what the
/// model reads.
struct Group {
  std::string name;  // for people
  std::vector<size_t> indices{};
  std::vector<GroupPiece> pieces{};
  std::vector<at::Tensor> masters{}, values{};
};

/// All that this process updates.
struct OwnWeights {
  std::vector<ParameterPiece> pieces{};
  std::vector<at::Tensor> masters{}, values{};  // of the parameters' shapes where they are whole, else flat
};

struct AdamWSettings {
  double lr, beta1, beta2, eps, decay;
};
/// `decayed[i]`: whether the weight decay is meant for parameter i of the group.
std::unique_ptr<UpdateRule> adamw_rule(Group group, const AdamWSettings& settings,
                                       const std::vector<bool>& decayed);

/// Muon over matrices (ops/optim/muon.h). `shapes[i]` are matrices_in() the parameter of piece i, each of
/// which is treated by itself; the piece has some of them, whole.
std::unique_ptr<UpdateRule> muon_rule(Group group,
                                      const std::vector<std::vector<PlannedParameter::Matrix>>& shapes,
                                      const ops::MuonSettings& settings);

/// All rules of a configuration, for what this process updates of the parameters.
std::vector<std::unique_ptr<UpdateRule>> make_rules(const Parameters& parameters, const OwnWeights& own,
                                                    const TrainConfig& config, const ModelConfig& model,
                                                    at::ScalarType compute_dtype);

/// Whether Muon updates a parameter; then its matrices are in the order that they have in memory.
bool takes_muon(const Parameter& parameter, const TrainConfig& config);
std::vector<PlannedParameter::Matrix> matrices_in(const Parameter& parameter);

}  // namespace tightloop
