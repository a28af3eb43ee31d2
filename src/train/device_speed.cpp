#include "train/device_speed.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>

namespace tightloop {

double measure_gemm_flops(Device& device) {
  using Clock = std::chrono::steady_clock;
  c10::NoGradGuard no_grad;
  const int64_t size = device.is_cuda() ? 8192 : 1024, times = device.is_cuda() ? 20 : 4;
  const auto options = at::TensorOptions(at::kBFloat16).device(at::Device(device.name()));
  const auto a = at::randn({size, size}, options), b = at::randn({size, size}, options);
  auto out = at::empty_like(a);
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    device.synchronize();
    const auto began = Clock::now();
    for (int64_t i = 0; i < times; ++i) at::mm_out(out, a, b);
    device.synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    best = std::max(best, 2.0 * static_cast<double>(size * size * size * times) / seconds);
  }
  return best;
}

}  // namespace tightloop
