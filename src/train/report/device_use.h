#pragma once

#include <cstdint>
#include <optional>

#include "core/device.h"
#include "train/report/metrics.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// What training uses of its device, for the log: memory, FLOPs, and the fraction of the peak that they are.
class DeviceUse {
 public:
  /// `world`: processes that train together.
  DeviceUse(Device& device, const Recipe& recipe, int world)
      : device_(device), recipe_(recipe), world_(world) {}

  /// After a step: reads the memory where that is due, and empties the cache where empties_cache() says so.
  void look(int64_t step);
  /// Whether the operators of a step are counted (log.flops profiler).
  bool counts_flops_at(int64_t step) const;
  /// FLOPs of one token, from shapes (0: not known yet) and as operators were counted.
  double flops() const { return flops_; }
  void set_flops(double of_token) { flops_ = of_token; }
  void set_counted_flops(double of_token) { counted_flops_ = of_token; }
  /// Sets memory/... and perf/mfu, perf/flops_...
  void tell(IntervalReport& report) const;

 private:
  Device& device_;
  const Recipe& recipe_;
  const int world_;
  MemoryStats memory_;  // as read last
  double flops_ = 0;
  std::optional<double> counted_flops_;
};

}  // namespace tightloop
