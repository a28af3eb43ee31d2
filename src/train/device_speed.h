#pragma once

#include "core/device.h"

namespace tightloop {

/// The rate of a large matrix product in bf16, as the device's library runs it: FLOP/s. Takes a moment.
double measure_gemm_flops(Device& device);

}  // namespace tightloop
