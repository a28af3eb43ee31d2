#pragma once

#include <string>
#include <string_view>

namespace tightloop {

/// A line of /proc/cpuinfo ("model name", "flags") of the first processor; empty when there is none.
std::string cpu_info(std::string_view key);
/// Whether the processor and the kernel offer a feature, by the kernel's name for it ("avx2", "amx_bf16").
bool cpu_has(std::string_view flag);

}  // namespace tightloop
