#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/parameters.h"
#include "model/safetensors.h"
#include "train/schedule.h"
#include "train/train_config.h"

namespace tightloop {

/// How a group of parameters is updated. What it keeps is allocated at the start and changed in place.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// One update. `gradients` are those of all parameters, in fp32, still to be divided by `divisor`; `count`
  /// is the number of this step; both scalars are on the device.
  virtual void update(const std::vector<at::Tensor>& gradients, const at::Tensor& divisor,
                      const at::Tensor& count, const Rates& rates) = 0;
  /// The tensors themselves, by names that do not depend on the grouping.
  virtual NamedTensors state() const = 0;
};

/// Updates fp32 masters, whatever dtype the model computes in, by AdamW or by Muon and AdamW
/// (train.optimizer). It is given the parameters in fp32 and keeps those as masters; the model goes on with
/// copies in the compute dtype (with the masters themselves where that is fp32).
///
/// Gradients arrive as sums over tokens; `step` divides once by the step's token count, clips, and updates,
/// all on the device: the host learns nothing and waits for nothing.
class Optimizer {
 public:
  Optimizer(Parameters& parameters, const TrainConfig& config, const ModelConfig& model,
            at::ScalarType compute_dtype);

  /// Adds the gradients of one micro-batch and clears them. With one micro-batch a step this moves nothing.
  void accumulate();
  /// What was accumulated since the last step, in the order of the parameters; empty: nothing.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// One update from what was accumulated, divided by `divisor`: the step's number of supervised tokens, over
  /// all processes. Gives the norm of that gradient before clipping, as a tensor on the device.
  at::Tensor step(const Rates& rates, double divisor);

  /// The learning rate to show for a share: of all parameters, or of the matrices (muon).
  double lr(const Rates& rates) const { return lr_ * rates.share; }

  /// Weights (fp32) by the model's names.
  NamedTensors weights() const;
  /// Moments and the step count.
  NamedTensors state() const;
  /// Puts both back, and the model's compute copies with them.
  void load(const Safetensors& weights, const Safetensors& state);

 private:
  void publish();  // masters -> the model's compute dtype

  Parameters& parameters_;
  const double clip_;
  double lr_;
  std::vector<at::Tensor> values_, masters_, gradients_;
  std::vector<std::unique_ptr<UpdateRule>> rules_;
  at::Tensor count_;  // steps taken, fp32 scalar on the device
};

/// Copies weights by name into parameters of any dtype and device. A missing, unknown or differently shaped
/// tensor is a checkpoint error that names it and `file`.
void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file);

}  // namespace tightloop
