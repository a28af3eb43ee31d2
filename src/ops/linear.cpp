#include "ops/linear.h"

#include <ATen/ops/linear.h>

namespace tightloop::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return at::linear(x, weight, bias);
}

}  // namespace tightloop::ops
