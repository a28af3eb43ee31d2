#pragma once

#include <filesystem>
#include <functional>

namespace tightloop {

/// Runs `work` under torch's profiler and writes what it saw, on the host and the device, in Chrome's trace
/// format. Gives the share of the time in which at least one kernel ran on the device; 0 on the CPU.
double trace(const std::filesystem::path& file, bool gpu, const std::function<void()>& work);

}  // namespace tightloop
