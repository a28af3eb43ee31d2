#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/choice.h"
#include "core/device.h"
#include "core/device_load.h"
#include "core/terminal/progress_line.h"
#include "train/report/metrics.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// Where the peak comes from that MFU is a fraction of.
enum class PeakSource { kNone, kDataSheet, kMeasured };
template <>
inline constexpr auto kChoices<PeakSource> = std::to_array<Choice<PeakSource>>({
    {PeakSource::kNone, "none"},
    {PeakSource::kDataSheet, "data sheet"},
    {PeakSource::kMeasured, "measured GEMM"},
});

/// FLOP/s of the device at its best.
struct PeakFlops {
  double flops = 0;
  PeakSource source = PeakSource::kNone;
};
/// By the data sheet of a card that is known. Else that of a matrix product in the compute dtype, measured
/// once in a process; on a CPU the best of several small ones, in about 0.3 seconds.
PeakFlops peak_flops(Device& device, Precision precision);

/// Asks a GPU's driver once a second, from a thread of its own.
class LoadWatch {
 public:
  explicit LoadWatch(std::unique_ptr<DeviceLoadReader> reader,
                     std::chrono::milliseconds apart = std::chrono::seconds(1));
  /// Means since the last call; what was not asked for since is left out.
  DeviceLoad take();

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    void add(const std::optional<double>& value);
    std::optional<double> take();
  };
  void look();

  const std::unique_ptr<DeviceLoadReader> reader_;
  std::mutex mutex_;
  Mean utilization_, power_, temperature_, memory_;
  Ticker ticker_;  // last: its thread uses all of the above
};

/// What training uses of its device, for the log: memory, FLOPs, and the fraction of the peak that they are.
class DeviceUse {
 public:
  /// `world`: processes that train together.
  DeviceUse(Device& device, const Recipe& recipe, int world)
      : device_(device), recipe_(recipe), world_(world) {}

  /// Before the first step and before threads load data, in the process that writes the log: finds the peak
  /// and starts to ask the driver, where the log tells of them.
  void begin();
  const PeakFlops& peak() const { return peak_; }
  /// After a step: reads the memory where that is due, and empties the cache where empties_cache() says so.
  void look(int64_t step);
  /// Whether the operators of a step are counted (log.flops profiler).
  bool counts_flops_at(int64_t step) const;
  /// FLOPs of one token, from shapes (0: not known yet) and as operators were counted.
  double flops() const { return flops_; }
  void set_flops(double of_token) { flops_ = of_token; }
  void set_counted_flops(double of_token) { counted_flops_ = of_token; }
  /// Sets memory/..., device/... and perf/mfu, perf/flops_... in a report that knows what is due.
  void tell(IntervalReport& report);

 private:
  Device& device_;
  const Recipe& recipe_;
  const int world_;
  MemoryStats memory_;  // as read last
  PeakFlops peak_;
  std::unique_ptr<LoadWatch> load_;  // null where nobody tells
  double flops_ = 0;
  std::optional<double> counted_flops_;
};

}  // namespace tightloop
