#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "core/device.h"

namespace tightloop {

/// The rate of a matrix product of `size` (0: a large one) in a dtype, as the device's library runs it:
/// FLOP/s. Takes a moment: about `seconds`, or what one round takes.
double measure_gemm_flops(Device& device, at::ScalarType dtype, int64_t size = 0, double seconds = 1);

/// Which part `flops` is of `peak`; nothing where that is above 1 or there is no peak, for then one of the
/// two was measured wrongly.
std::optional<double> utilization(double flops, double peak);

}  // namespace tightloop
