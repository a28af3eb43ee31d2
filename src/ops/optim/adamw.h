#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace tightloop::ops {

/// Tensors that AdamW updates together, index by index. All dense, on one device.
struct AdamwTensors {
  std::vector<at::Tensor> masters, first, second;  // fp32: weights and both moments
  std::vector<at::Tensor> gradients;               // fp32, bf16 or fp16, all alike
  std::vector<at::Tensor> values;                  // the weights as the model reads them; may be the masters
  std::vector<double> rate, decay;                 // factor on the learning rate, and weight decay, of each
};

/// Numbers that live on the device, so that an update can be captured once and replayed: fp32 (4).
/// lr; what gradients are divided by (token count, loss scale and clipping in one); how many updates there
/// were, this one included; not 0 to leave everything as it is.
struct AdamwControl {
  enum { kRate, kDivisor, kCount, kSkip, kSize };
};

struct AdamwBetas {
  double beta1, beta2, eps;
};

/// One pass over everything, one launch for up to 512 tensors on CUDA:
///     g = gradient / divisor;  w -= lr * decay * w;  m += (1 - beta1) (g - m);  v += (1 - beta2) (g^2 - v)
///     w -= lr / (1 - beta1^count) * m / (sqrt(v / (1 - beta2^count)) + eps);  value = w, rounded
/// in fp32. Nothing is read back.
void adamw_(const AdamwTensors& tensors, const AdamwBetas& betas, const at::Tensor& control);

/// The same in ordinary ATen.
void adamw_plain_(const AdamwTensors& tensors, const AdamwBetas& betas, const at::Tensor& control);

}  // namespace tightloop::ops
