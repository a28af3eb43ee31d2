#pragma once

#include <filesystem>
#include <functional>

#include "bench/kernel_table.h"

namespace tightloop {

/// Runs `work` under torch's profiler and writes what it saw, on the host and the device, in Chrome's trace
/// format. Gives the device's kernels by their short names; on the CPU, torch's operators.
KernelTable trace(const std::filesystem::path& file, bool gpu, const std::function<void()>& work);

}  // namespace tightloop
