#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/parameters.h"
#include "model/safetensors.h"
#include "train/train_config.h"

namespace tightloop {

/// AdamW over fp32 masters, whatever dtype the model computes in. It is given the parameters in fp32 and
/// keeps those as masters; the model goes on with copies in the compute dtype (with the masters themselves
/// where that is fp32).
///
/// Gradients arrive as sums over tokens; `step` divides once by the step's token count, clips, and updates,
/// all on the device: the host learns nothing and waits for nothing.
class AdamW {
 public:
  AdamW(Parameters& parameters, const TrainConfig& config, at::ScalarType compute_dtype);

  /// Adds the gradients of one micro-batch and clears them. With one micro-batch a step this moves nothing.
  void accumulate();
  /// One update from what was accumulated. `tokens` is the step's number of supervised tokens, over all
  /// processes. Gives the norm of the mean gradient before clipping, as a tensor on the device.
  at::Tensor step(double lr, int64_t tokens);

  /// Weights (fp32) by the model's names.
  NamedTensors weights() const;
  /// Moments and the step count.
  NamedTensors state() const;
  /// Puts both back, and the model's compute copies with them.
  void load(const Safetensors& weights, const Safetensors& state);

 private:
  void publish();  // masters -> the model's compute dtype

  Parameters& parameters_;
  const TrainConfig config_;
  std::vector<at::Tensor> values_, masters_, gradients_, first_, second_;
  std::vector<size_t> decayed_, plain_;  // indices of both groups
  at::Tensor count_;                     // steps taken, fp32 scalar on the device
};

/// Copies weights by name into parameters of any dtype and device. A missing, unknown or differently shaped
/// tensor is a checkpoint error that names it and `file`.
void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file);

}  // namespace tightloop
