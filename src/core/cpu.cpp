#include "core/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace tightloop {

std::string cpu_info(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return {};
}

bool cpu_has(std::string_view flag) {
  static const std::set<std::string, std::less<>> flags = [] {
    std::istringstream words(cpu_info("flags"));
    std::set<std::string, std::less<>> all;
    for (std::string word; words >> word;) all.insert(word);
    return all;
  }();
  return flags.contains(flag);
}

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

bool fast_bf16_products(bool amx, std::string_view aten_capability, std::string_view onednn_isa) {
  const std::string isa = upper(onednn_isa);
  const bool narrow = aten_capability == "default" || aten_capability == "avx2";
  const bool allowed =
      isa.empty() || isa == "DEFAULT" || isa == "ALL" || isa.find("AMX") != std::string::npos;
  return amx && allowed && !narrow;
}

bool cpu_has_fast_bf16() {
  return fast_bf16_products(cpu_has("amx_bf16"), variable("ATEN_CPU_CAPABILITY"),
                            variable("ONEDNN_MAX_CPU_ISA"));
}

bool cpu_has_bf16_products() {
  const std::string isa = upper(variable("ONEDNN_MAX_CPU_ISA"));
  const bool narrow = isa.starts_with("SSE") || (isa.starts_with("AVX") && !isa.starts_with("AVX512"));
  return cpu_has("avx512bw") && cpu_has("avx512vl") && cpu_has("avx512dq") && !narrow;
}

bool amx_is_half_offered(bool amx, unsigned palettes) { return amx && palettes == 0; }

void avoid_half_offered_amx() {
#ifdef __x86_64__
  unsigned palettes = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(0x1d, 0, &palettes, &b, &c, &d)) palettes = 0;  // no such leaf
  constexpr int kKeep = 0;
  if (amx_is_half_offered(cpu_has("amx_tile"), palettes))
    ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", kKeep);
#endif
}

}  // namespace tightloop

/// Torch multiplies in fp32 by MKL, which asks a function of its own of this name whether the processor is
/// Intel's, and keeps to AVX2 where it is not. It does so through the dynamic linker, which finds this one
/// first: on an AMD EPYC with AVX-512 such products take half the time (numerics.md). Which instructions
/// there are MKL still finds out by itself, and MKL_ENABLE_INSTRUCTIONS still limits them.
extern "C" __attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  using namespace tightloop;
  static const bool trusted = cpu_info("vendor_id") == "GenuineIntel" ||
                              (cpu_has("avx512bw") && cpu_has("avx512vl") && cpu_has("avx512dq"));
  return trusted;
}
