#include "train/report/device_use.h"

#include <chrono>
#include <thread>

#include "support.h"

// A management library of our own, which is found in this program: no machine without a GPU has NVIDIA's.
namespace {
int opened = 0;
bool has_power = true;
}  // namespace
extern "C" {
int nvmlInit_v2() { return ++opened, 0; }
int nvmlShutdown() { return --opened, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = &opened;
  return std::string(id) == "0000:17:00.0" ? 0 : 6;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = 75, rates[1] = 10;
  return device == &opened ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 123456, has_power ? 0 : 3; }
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* degrees) { return *degrees = 51, sensor; }
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 8ull << 30, memory[1] = 6ull << 30, memory[2] = 2ull << 30;
  return 0;
}
}

namespace tightloop::testing {
namespace {

TEST(DeviceLoad, IsWhatTheDriverSays) {
  {
    const auto reader = DeviceLoadReader::open("0000:17:00.0", nullptr);
    ASSERT_TRUE(reader);
    EXPECT_EQ(opened, 1);
    const DeviceLoad load = reader->read();
    EXPECT_EQ(load.utilization, 0.75);
    EXPECT_NEAR(*load.power_watts, 123.456, 1e-9);
    EXPECT_EQ(load.temperature_c, 51);
    EXPECT_EQ(load.memory_used, 2.0 * (1 << 30));
    has_power = false;
    EXPECT_FALSE(reader->read().power_watts) << "some cards do not say";
    has_power = true;
  }
  EXPECT_EQ(opened, 0) << "given back";
}

TEST(DeviceLoad, IsAbsentWithoutLibraryOrGpu) {
  EXPECT_FALSE(DeviceLoadReader::open("0000:17:00.0", "libthere-is-none.so.1"));
  EXPECT_FALSE(DeviceLoadReader::open("0000:99:00.0", nullptr)) << "a GPU that the driver does not know";
  EXPECT_FALSE(DeviceLoadReader::open("", nullptr)) << "the CPU";
  EXPECT_TRUE(cpu_device().pci_bus_id().empty());
  EXPECT_EQ(opened, 0);
}

TEST(DeviceLoad, IsAMeanOverWhatWasAskedSince) {
  LoadWatch watch(DeviceLoadReader::open("0000:17:00.0", nullptr), std::chrono::milliseconds(5));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  DeviceLoad load;
  while (!(load = watch.take()).utilization && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(load.utilization, 0.75);
  EXPECT_EQ(load.temperature_c, 51);
}

TEST(ProcessMemory, GrowsWithWhatIsTouched) {
  const int64_t before = process_memory();
  EXPECT_GT(before, 1 << 20);
  const std::vector<char> memory(64 << 20, 1);
  EXPECT_GT(process_memory(), before + (32 << 20)) << memory[1234];
}

TEST(PeakFlops, OfADeviceWithoutDataSheetIsMeasuredOnceAndSoon) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const PeakFlops first = peak_flops(cpu_device(), Precision::kFp32);
  const std::chrono::duration<double> took = Clock::now() - start;
  EXPECT_EQ(first.source, PeakSource::kMeasured);
  EXPECT_GT(first.flops, 1e8);
  EXPECT_LT(took.count(), 2) << "0.3 s on a machine that has nothing else to do";
  EXPECT_EQ(peak_flops(cpu_device(), Precision::kFp32).flops, first.flops);
}

}  // namespace
}  // namespace tightloop::testing
