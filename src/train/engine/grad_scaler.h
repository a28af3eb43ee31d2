#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/files/safetensors.h"

namespace tightloop {

struct GradScalerConfig {
  double initial = 65536, growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;
};

/// Keeps fp16 gradients from underflowing: the loss is multiplied by a scale, gradients are divided by it,
/// and the scale follows whether they were finite. As torch.amp.GradScaler, but all of it lives on the device
/// and the host never waits: whether an update is skipped is a flag that the optimizer's kernel reads.
///
///     GradScaler scaler(device, {});
///     scaler.scale(loss).backward();
///     scaler.unscale_(gradients);
///     scaler.step([&](const at::Tensor& found_inf) { optimizer.step(..., found_inf); });
///     scaler.update();
class GradScaler {
 public:
  GradScaler(at::Device device, const GradScalerConfig& config);

  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides gradients by the scale, in place, and notes whether any is infinite or NaN; undefined ones are
  /// passed over. Once a step: a second call before update() is an error.
  void unscale_(const std::vector<at::Tensor>& gradients);
  /// Calls `update(found_inf)`: fp32 (1) on the device, not 0 when this step must change nothing. Gradients
  /// are unscaled first; torch's scaler would do that by itself, but this one does not know them.
  template <class Update>
  void step(Update&& update) {
    require_unscaled();
    update(found_inf_);
  }
  /// Grows the scale after growth_interval good steps, backs off after a bad one.
  void update();
  /// The same for those who found out by themselves, such as from the gradient's norm, and divided by
  /// factor() in passing: bool, on the device.
  void update(const at::Tensor& found_inf);

  const at::Tensor& factor() const { return scale_; }
  const at::Tensor& found_inf() const { return found_inf_; }

  /// For checkpoints.
  NamedTensors state() const { return {{"scaler.scale", scale_}, {"scaler.growth", growth_}}; }

 private:
  void require_unscaled() const;

  GradScalerConfig config_;
  at::Tensor scale_, growth_, found_inf_;
  bool unscaled_ = false;  // since the last update()
};

}  // namespace tightloop
