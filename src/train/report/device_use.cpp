#include "train/report/device_use.h"

#include "train/engine/device_speed.h"
#include "train/settings/memory_plan.h"

namespace tightloop {

namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

void DeviceUse::look(int64_t step) {
  const bool told = due(recipe_.log, step - 1, step, step == recipe_.train.steps).memory;
  if (device_.is_cuda() && (told || memory_is_checked(step))) memory_ = device_.memory_stats();
  // On a CPU asking for the total reads files, and there is no cache.
  const int64_t total = device_.is_cuda() ? device_.total_memory() : 0;
  if (empties_cache(recipe_.train, step, memory_, total)) device_.empty_cache();
}

bool DeviceUse::counts_flops_at(int64_t step) const {
  // Also in the first step after resuming.
  return recipe_.log.flops == FlopCount::kProfiler &&
         due(recipe_.log, flops_ == 0 ? 0 : step - 1, step).flops;
}

void DeviceUse::tell(IntervalReport& report) const {
  if (device_.is_cuda()) {
    report.set("memory/allocated_gib", gib(memory_.allocated));
    report.set("memory/reserved_gib", gib(memory_.reserved));
    report.set("memory/peak_gib", gib(memory_.allocated_peak));
  }
  const double speed = counted_flops_.value_or(flops_) * report.number("perf/tokens_per_second").value_or(0);
  if (const auto mfu = utilization(speed, device_.data_sheet_flops() * world_)) report.set("perf/mfu", *mfu);
  report.set("perf/flops_per_token", flops_);
  if (counted_flops_) report.set("perf/flops_per_token_counted", *counted_flops_);
}

}  // namespace tightloop
