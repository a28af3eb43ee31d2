#include "train/engine/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "core/error.h"

namespace tightloop {

GradScaler::GradScaler(at::Device device, const GradScalerConfig& config) : config_(config) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  scale_ = at::full({}, config.initial, options);
  growth_ = at::zeros({}, options.dtype(at::kInt));
  found_inf_ = at::zeros({}, options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

void GradScaler::require_unscaled() const {
  if (!unscaled_) throw usage_error("GradScaler::step(): call unscale_(gradients) before it, once a step.");
}

void GradScaler::unscale_(const std::vector<at::Tensor>& all) {
  c10::NoGradGuard no_grad;
  if (unscaled_)
    throw usage_error(
        "GradScaler::unscale_() was called already since the last update(): gradients would be "
        "divided twice.");
  unscaled_ = true;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& gradient : all)
    if (gradient.defined()) gradients.push_back(gradient);
  if (gradients.empty()) return;
  // In double, as torch does it: the reciprocal of a power of two is exact anyway.
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_,
                                                 at::reciprocal(scale_.to(at::kDouble)).to(at::kFloat));
}

void GradScaler::update() {
  c10::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_, found_inf_, config_.growth, config_.backoff,
                         config_.growth_interval);
  found_inf_.zero_();
  unscaled_ = false;
}

void GradScaler::update(const at::Tensor& found_inf) {
  found_inf_.copy_(found_inf);
  update();
}

}  // namespace tightloop
