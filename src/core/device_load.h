#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tightloop {

/// What a GPU's driver says of it at a moment; nothing where it does not say.
struct DeviceLoad {
  std::optional<double> utilization;  // fraction of the last moments in which a kernel ran
  std::optional<double> power_watts, temperature_c;
  std::optional<double> memory_used;  // bytes, of all processes
};

/// Asks NVIDIA's management library (NVML), which comes with the driver and is opened when it is needed. A
/// call takes up to a few milliseconds: it is for threads that nobody waits for.
class DeviceLoadReader {
 public:
  /// The GPU at a PCI bus id ("0000:17:00.0"). Null where the library or the GPU is not there. A null
  /// `library` looks for its functions in the program itself.
  static std::unique_ptr<DeviceLoadReader> open(const std::string& pci_bus_id,
                                                const char* library = "libnvidia-ml.so.1");
  ~DeviceLoadReader();
  DeviceLoadReader(const DeviceLoadReader&) = delete;
  DeviceLoadReader& operator=(const DeviceLoadReader&) = delete;

  DeviceLoad read() const;

 private:
  struct Library;
  DeviceLoadReader(std::unique_ptr<Library> library, void* device);
  std::unique_ptr<Library> library_;
  void* device_;  // the library's handle
};

/// Bytes of the machine's memory that this process holds; 0 where nobody says.
int64_t process_memory();

}  // namespace tightloop
