#include "train/engine/loss_compute.h"

#include <ATen/TensorOperators.h>

namespace tightloop {

LossCompute::Result LossCompute::compute_loss_tensor(const at::Tensor& out, const at::Tensor& targets,
                                                     double normalize) const {
  const at::Tensor loss = criterion_(generator_(out), targets) / normalize;
  if (optimizer_) loss.backward();
  return {loss.detach(), optimizer_ != nullptr};
}

float LossCompute::operator()(const at::Tensor& out, const at::Tensor& targets, double normalize) const {
  return compute_loss_tensor(out, targets, normalize).tensor.item<float>();
}

}  // namespace tightloop
