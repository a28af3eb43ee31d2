#include <torch/library.h>

#include <optional>

#include "cuda/operator.h"
#include "ops/pointwise/stamp_launch.h"

namespace tightloop::cuda {

namespace {

void lap(const at::Tensor& row, int64_t clock, std::optional<int64_t> part) {
  const Guard guard(row.device());
  run(ops::cuda::Lap{.row = row.mutable_data_ptr<double>(), .clock = clock, .part = part.value_or(-1)});
}

TIGHTLOOP_KERNELS(m) { m.impl("lap_", lap); }

}  // namespace

}  // namespace tightloop::cuda
