#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tightloop {

/// A kernel of the device, or an operator of the host, while it ran.
struct KernelSpan {
  std::string name;
  int64_t begin = 0, end = 0;  // in nanoseconds
  uint64_t thread = 0;
};

/// All that ran under one name.
struct KernelRow {
  std::string name;
  int64_t count = 0;
  double ms = 0;
};

/// Where the time of some steps went.
struct KernelTable {
  std::vector<KernelRow> rows;      // largest first
  double busy_ms = 0, span_ms = 0;  // in which at least one ran; from the start of the first to the last end

  /// Share of the time in which at least one ran.
  double busy() const { return span_ms > 0 ? busy_ms / span_ms : 0; }
};

/// Adds spans up by name. `nested`: spans of a thread call each other, and each is told without what it
/// called.
KernelTable kernel_table(std::vector<KernelSpan> spans, bool nested);

/// The table of `steps` steps, a step, for people: the largest rows, the rest in one, and a line about all.
std::string table_text(const KernelTable& table, int64_t steps, const std::string& kind);

/// A kernel's name without return type, parameters, namespaces and most template arguments. What remains
/// still tells functors and dtypes apart: "elementwise: CUDAFunctor_add<bf16>".
std::string short_kernel_name(std::string name);

}  // namespace tightloop
