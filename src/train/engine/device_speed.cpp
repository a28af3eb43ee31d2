#include "train/engine/device_speed.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>

#include "ops/linear.h"

namespace tightloop {

double measure_gemm_flops(Device& device, at::ScalarType dtype, int64_t size, double seconds) {
  using Clock = std::chrono::steady_clock;
  c10::NoGradGuard no_grad;
  if (size == 0) size = device.is_cuda() ? 8192 : 1024;
  const int64_t times = device.is_cuda() ? 20 : 1;
  const auto options = at::TensorOptions(dtype).device(at::Device(device.name()));
  const auto a = at::randn({size, size}, options), b = at::randn({size, size}, options);
  auto out = at::empty_like(a);
  const auto seconds_since = [&](Clock::time_point began) {
    device.synchronize();
    return std::chrono::duration<double>(Clock::now() - began).count();
  };
  const bool wide = !device.is_cuda() && !ops::has_products(dtype);  // as the model's products go
  double best = 0;
  const auto start = Clock::now();
  for (int round = 0; round < 8 && (round == 0 || seconds_since(start) < seconds); ++round) {
    device.synchronize();
    const auto began = Clock::now();
    for (int64_t i = 0; i < times; ++i)
      if (wide)
        out = ops::linear(a, b);
      else
        at::mm_out(out, a, b);
    best = std::max(best, 2.0 * static_cast<double>(size * size * size * times) / seconds_since(began));
  }
  return best;
}

std::optional<double> utilization(double flops, double peak) {
  if (peak <= 0 || flops > peak) return std::nullopt;
  return flops / peak;
}

}  // namespace tightloop
