#include "ops/linear.h"

#include <ATen/ops/linear.h>

#include "ops/fp8/fp8_linear.h"

namespace tightloop::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (fp8_takes(x, weight)) return fp8_linear(x, weight, bias);
  return at::linear(x, weight, bias);
}

}  // namespace tightloop::ops
