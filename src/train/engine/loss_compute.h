#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "train/optim/optimizer.h"

namespace tightloop {

/// The loss of a batch for loops that people write themselves. Built from a generator (the head: states to
/// scores), a criterion (scores and targets to a summed loss) and, to learn, an optimizer.
///
///     LossCompute loss_compute(head, criterion, &optimizer);
///     auto [loss, learned] = loss_compute.compute_loss_tensor(states, targets, tokens);  // nothing waits
///     if (learned) optimizer.step(rates, 1);
class LossCompute {
 public:
  using Generator = std::function<at::Tensor(const at::Tensor& out)>;
  using Criterion = std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& targets)>;

  struct Result {
    at::Tensor tensor;  // loss / normalize, on the device, without a gradient
    bool did_backward;
  };

  LossCompute(Generator generator, Criterion criterion, Optimizer* optimizer = nullptr)
      : generator_(std::move(generator)), criterion_(std::move(criterion)), optimizer_(optimizer) {}

  /// Gives loss / normalize. Where there is an optimizer its gradient is computed, too, and is in the
  /// parameters' .grad afterwards, for optimizer->accumulate(). Reads nothing back.
  Result compute_loss_tensor(const at::Tensor& out, const at::Tensor& targets, double normalize) const;

  /// The same as a number, at once: this waits for the device.
  float operator()(const at::Tensor& out, const at::Tensor& targets, double normalize) const;

 private:
  Generator generator_;
  Criterion criterion_;
  Optimizer* optimizer_;
};

}  // namespace tightloop
