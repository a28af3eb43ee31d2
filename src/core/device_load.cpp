#include "core/device_load.h"

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace tightloop {

/// The few functions that we call, as nvml.h declares them: its header need not be installed. All of them
/// give 0 on success.
struct DeviceLoadReader::Library {
  struct Utilization {
    unsigned gpu, memory;  // per cent
  };
  struct Memory {
    unsigned long long total, free, used;
  };
  enum { kTemperatureOfTheGpu = 0 };

  explicit Library(const char* name) : handle(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) return;
    find(init, "nvmlInit_v2");
    find(shutdown, "nvmlShutdown");
    find(device, "nvmlDeviceGetHandleByPciBusId_v2");
    find(utilization, "nvmlDeviceGetUtilizationRates");
    find(power, "nvmlDeviceGetPowerUsage");
    find(temperature, "nvmlDeviceGetTemperature");
    find(memory, "nvmlDeviceGetMemoryInfo");
    usable = init && shutdown && device && init() == 0;
  }
  ~Library() {
    if (usable) shutdown();
    if (handle) ::dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
  }

  void* handle;
  bool usable = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device)(const char* bus_id, void** device) = nullptr;
  int (*utilization)(void* device, Utilization*) = nullptr;
  int (*power)(void* device, unsigned* milliwatts) = nullptr;
  int (*temperature)(void* device, int sensor, unsigned* degrees) = nullptr;
  int (*memory)(void* device, Memory*) = nullptr;
};

std::unique_ptr<DeviceLoadReader> DeviceLoadReader::open(const std::string& pci_bus_id, const char* library) {
  if (pci_bus_id.empty()) return nullptr;
  auto opened = std::make_unique<Library>(library);
  void* device = nullptr;
  if (!opened->usable || opened->device(pci_bus_id.c_str(), &device) != 0) return nullptr;
  return std::unique_ptr<DeviceLoadReader>(new DeviceLoadReader(std::move(opened), device));
}

DeviceLoadReader::DeviceLoadReader(std::unique_ptr<Library> library, void* device)
    : library_(std::move(library)), device_(device) {}
DeviceLoadReader::~DeviceLoadReader() = default;

DeviceLoad DeviceLoadReader::read() const {
  const Library& nvml = *library_;
  DeviceLoad load;
  Library::Utilization utilization{};
  Library::Memory memory{};
  unsigned number = 0;
  if (nvml.utilization && nvml.utilization(device_, &utilization) == 0)
    load.utilization = utilization.gpu / 100.0;
  if (nvml.power && nvml.power(device_, &number) == 0) load.power_watts = number / 1000.0;
  if (nvml.temperature && nvml.temperature(device_, Library::kTemperatureOfTheGpu, &number) == 0)
    load.temperature_c = number;
  if (nvml.memory && nvml.memory(device_, &memory) == 0) load.memory_used = static_cast<double>(memory.used);
  return load;
}

int64_t process_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;  // pages
  return file >> size >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace tightloop
