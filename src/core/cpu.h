#pragma once

#include <string>
#include <string_view>

namespace tightloop {

/// A line of /proc/cpuinfo ("model name", "flags") of the first processor; empty when there is none.
std::string cpu_info(std::string_view key);
/// Whether the processor and the kernel offer a feature, by the kernel's name for it ("avx2", "amx_bf16").
bool cpu_has(std::string_view flag);

/// Whether torch's matrix products in bf16 are no slower than those in fp32 on a CPU with AMX or not, given
/// what $ATEN_CPU_CAPABILITY and $ONEDNN_MAX_CPU_ISA allow torch to use of it (empty: all). Without AMX they
/// gain little at best; without AVX-512 torch has no kernel for them and they are a hundred times slower.
bool fast_bf16_products(bool amx, std::string_view aten_capability, std::string_view onednn_isa);
/// The same for this machine.
bool cpu_has_fast_bf16();

/// Whether torch has a kernel for matrix products in bf16 on this machine at all.
bool cpu_has_bf16_products();

/// Some virtual machines offer AMX and hide the sizes of its tiles, and torch's bf16 products then end with
/// an illegal instruction. There torch is told to do without AMX; a value of $ONEDNN_MAX_CPU_ISA stays as it
/// is. To be called before torch computes anything.
void avoid_half_offered_amx();
/// What it decides by: the feature, and the number of tile palettes that CPUID names.
bool amx_is_half_offered(bool amx, unsigned palettes);

}  // namespace tightloop
