#include "train/report/device_use.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "train/engine/device_speed.h"
#include "train/engine/precision.h"
#include "train/settings/memory_plan.h"

namespace tightloop {

namespace {

double gib(double bytes) { return bytes / (int64_t{1} << 30); }
double gib(int64_t bytes) { return gib(static_cast<double>(bytes)); }

/// The best of a few short rounds with pauses between them: other processes take the cores for many
/// milliseconds at a time, and a round that they held up says nothing about the CPU.
double cpu_peak(Device& device, at::ScalarType dtype) {
  constexpr int kRounds = 5;
  constexpr int64_t kSize = 512;
  constexpr double kRound = 0.04;  // seconds
  constexpr std::chrono::milliseconds kPause{15};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) std::this_thread::sleep_for(kPause);
    best = std::max(best, measure_gemm_flops(device, dtype, kSize, kRound));
  }
  return best;
}

}  // namespace

PeakFlops peak_flops(Device& device, Precision precision) {
  if (const double flops = device.data_sheet_flops(); flops > 0) return {flops, PeakSource::kDataSheet};
  static std::mutex mutex;
  static std::map<std::pair<std::string, at::ScalarType>, double> measured;
  const at::ScalarType dtype = compute_dtype(precision, device);
  const std::lock_guard lock(mutex);
  double& flops = measured[{device.name(), dtype}];
  try {
    if (flops == 0) flops = device.is_cuda() ? measure_gemm_flops(device, dtype) : cpu_peak(device, dtype);
  } catch (const c10::Error&) {  // no memory for it, or a dtype that the device does not multiply
    return {};
  }
  device.empty_cache();
  device.reset_peak_memory();  // of training, not of this
  return {flops, PeakSource::kMeasured};
}

LoadWatch::LoadWatch(std::unique_ptr<DeviceLoadReader> reader, std::chrono::milliseconds apart)
    : reader_(std::move(reader)), ticker_(apart, [this] { look(); }) {}

void LoadWatch::Mean::add(const std::optional<double>& value) {
  if (value) sum += *value, ++count;
}

std::optional<double> LoadWatch::Mean::take() {
  const Mean mean = std::exchange(*this, {});
  if (mean.count == 0) return {};
  return mean.sum / static_cast<double>(mean.count);
}

void LoadWatch::look() {
  const DeviceLoad now = reader_->read();
  const std::lock_guard lock(mutex_);
  utilization_.add(now.utilization), power_.add(now.power_watts);
  temperature_.add(now.temperature_c), memory_.add(now.memory_used);
}

DeviceLoad LoadWatch::take() {
  const std::lock_guard lock(mutex_);
  return {utilization_.take(), power_.take(), temperature_.take(), memory_.take()};
}

void DeviceUse::begin() {
  if (recipe_.log.detail_steps == 0 || recipe_.log.reduced_logging) return;
  peak_ = peak_flops(device_, recipe_.train.precision);
  if (auto reader = DeviceLoadReader::open(device_.pci_bus_id()))
    load_ = std::make_unique<LoadWatch>(std::move(reader));
}

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

void DeviceUse::tell(IntervalReport& report) {
  if (report.due.memory) report.set("memory/host_gib", gib(process_memory()));
  if (report.due.detail && load_) {
    const DeviceLoad load = load_->take();
    const auto set = [&](const char* metric, const std::optional<double>& value) {
      if (value) report.set(metric, *value);
    };
    set("device/gpu_utilization", load.utilization);
    set("device/power_watts", load.power_watts);
    set("device/temperature_c", load.temperature_c);
    if (load.memory_used) report.set("device/memory_used_gib", gib(*load.memory_used));
  }
  if (device_.is_cuda()) {
    report.set("memory/allocated_gib", gib(memory_.allocated));
    report.set("memory/reserved_gib", gib(memory_.reserved));
    report.set("memory/peak_gib", gib(memory_.allocated_peak));
  }
  const double speed = counted_flops_.value_or(flops_) * report.number("perf/tokens_per_second").value_or(0);
  if (const auto mfu = utilization(speed, peak_.flops * world_)) report.set("perf/mfu", *mfu);
  report.set("perf/flops_per_token", flops_);
  if (counted_flops_) report.set("perf/flops_per_token_counted", *counted_flops_);
}

}  // namespace tightloop
