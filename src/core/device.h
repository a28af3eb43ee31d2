#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tightloop {

struct MemoryStats {
  int64_t allocated = 0, allocated_peak = 0;  // bytes in tensors
  int64_t reserved = 0, reserved_peak = 0;    // bytes the allocator holds from the device
};

struct CopySpeed {
  double pinned_to_device = 0, pinned_from_device = 0;      // bytes per second
  double pageable_to_device = 0, pageable_from_device = 0;  // the same from ordinary memory
};

/// Device work that was recorded once and runs again at the cost of one launch, on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

/// What the layers without torch need of the machine that computes. The CPU is one, the CUDA plug-in brings
/// the others. Objects live as long as the process. (Streams and events need no entry here: c10::Stream and
/// c10::Event serve every device.)
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "cpu" or "cuda:0": what torch calls it too.
  virtual std::string name() const = 0;
  /// For people: "cuda:0 NVIDIA H200".
  virtual std::string description() const = 0;
  virtual bool is_cuda() const = 0;
  /// Whether matrix products of 8-bit floating point numbers are in its hardware.
  virtual bool has_fp8() const { return false; }
  /// "driver 13.0, runtime 13.0"; empty on the CPU.
  virtual std::string versions() const = 0;
  /// Where a GPU is plugged in, as its driver names it ("0000:17:00.0"); empty on the CPU.
  virtual std::string pci_bus_id() const { return {}; }

  virtual int64_t total_memory() const = 0;
  virtual int64_t free_memory() const = 0;
  /// What new tensors can have: free_memory() and what torch's allocator holds and nobody uses, as far as
  /// limit_memory() lets it.
  virtual int64_t room() const { return free_memory(); }
  /// Of torch's allocator on this device; zeros on the CPU, where nobody counts.
  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak_memory() = 0;
  /// Gives what torch's allocator holds and does not use back to the device.
  virtual void empty_cache() = 0;
  /// Off: every tensor's memory is asked from the device and given back to it, to see what pools are worth.
  virtual void use_pools(bool on) = 0;
  /// The allocator fails beyond this many bytes, as if the device had no more.
  virtual void limit_memory(int64_t bytes) = 0;
  /// Dense bf16 products by the data sheet, in FLOP/s; 0 where it is not known.
  virtual double data_sheet_flops() const = 0;

  /// Host memory that this device reads fastest (page-locked for a GPU), aligned to at least 64 bytes.
  /// Throws Error(kDevice) when there is none left. Size 0 gives a null pointer.
  virtual void* allocate_host(size_t size) = 0;
  virtual void free_host(void* memory) noexcept = 0;

  /// Records what `work` starts on the device instead of running it. `work` must have run before, for real,
  /// so that libraries are warm; its tensors live in memory that all graphs captured by this thread share, so
  /// graphs must be replayed in the order of their capture and what one leaves to another must be kept alive.
  /// Several threads may each capture and replay graphs of their own. Null where the device has no graphs; an
  /// exception from `work`, or of CUDA when something cannot be recorded, passes through.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
  /// While on, work of torch that makes the host wait is an error (for tests; CUDA alone).
  virtual void forbid_syncs(bool on) = 0;

  /// Waits for everything that was started on the device.
  virtual void synchronize() = 0;
  /// Copies `size` bytes both ways, the best of a few rounds. Zeros on the CPU.
  virtual CopySpeed measure_copies(size_t size) = 0;

 protected:
  Device() = default;
};

/// A buffer from Device::allocate_host.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(Device& device, size_t size)
      : device_(&device), data_(device.allocate_host(size)), size_(size) {}
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A kind of device that a plug-in brings.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual std::string kind() const = 0;  // "cuda"
  virtual int count() = 0;
  /// Why count() is 0, as the driver puts it.
  virtual std::string why_none() = 0;
  virtual std::unique_ptr<Device> open(int index) = 0;
};

/// Called by a plug-in when it is loaded.
void register_device_backend(std::unique_ptr<DeviceBackend> backend);

/// auto, cpu, cuda or cuda:N. "auto" is the first GPU where one is usable and the CPU otherwise; asking for a
/// GPU that is not usable is Error(kDevice) and says why. Loads the plug-in where needed.
Device& device(const std::string& name);
Device& cpu_device();

/// What the processes of a control group hold, by its files: memory.current and memory.stat. Pages of files
/// that were read or written and are not in use count there, too; they are given up as soon as somebody needs
/// memory, and are left out here. Nothing where there is no such file.
std::optional<int64_t> control_group_use(const std::string& used, const std::string& stat);

/// How many GPUs are usable, and why none is (empty when there is one).
int cuda_device_count();
std::string why_no_cuda();

}  // namespace tightloop
