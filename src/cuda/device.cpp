// Device services over CUDA, behind core's Device interface. Loading the library registers them.

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/device.h"
#include "core/error.h"

namespace tightloop::cuda {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // not sticky: the next call should not trip over it
  throw device_error("{} failed: {} ({}).", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

double best_speed(size_t size, const std::function<void()>& copy) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int round = 0; round < 4; ++round) {  // the first one warms up
    const auto start = Clock::now();
    copy();
    const std::chrono::duration<double> took = Clock::now() - start;
    if (round > 0) best = std::max(best, static_cast<double>(size) / took.count());
  }
  return best;
}

/// Device memory outside of torch's allocator, for a measurement.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t size) { check(cudaMalloc(&data_, size), "allocating device memory"); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A broken capture leaves torch's generator of random numbers waiting for its end: gives it a state of its
/// own with the same seed and place.
void renew_generator() {
  at::Generator current = at::cuda::detail::getDefaultCUDAGenerator();
  at::Generator fresh = at::cuda::detail::createCUDAGenerator();
  fresh.set_current_seed(current.current_seed());
  fresh.set_offset(current.get_offset());
  current.graphsafe_set_state(fresh);
}

/// One thread at a time captures a graph or gives one up: torch's generator has a list of them, its allocator
/// frees nothing while one is captured, and the device may not be waited for then.
std::mutex& captures() {
  static std::mutex one_at_a_time;
  return one_at_a_time;
}

class CudaGraph : public Graph {
 public:
  CudaGraph(const std::function<void()>& work, std::shared_ptr<const at::cuda::MempoolId_t> pool)
      : pool_(std::move(pool)) {
    try {
      graph_->capture_begin(*pool_, cudaStreamCaptureModeThreadLocal);
      work();
    } catch (...) {
      try {
        graph_->capture_end();
      } catch (...) {  // the capture was broken by what `work` threw about
      }
      cudaGetLastError();
      renew_generator();
      throw;
    }
    graph_->capture_end();
  }
  ~CudaGraph() override {
    const std::lock_guard alone(captures());
    graph_.reset();
  }
  void replay() override { graph_->replay(); }

 private:
  std::shared_ptr<const at::cuda::MempoolId_t> pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_ = std::make_unique<at::cuda::CUDAGraph>();
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    at::globalContext().lazyInitDevice(at::kCUDA);  // the allocator counts from here on
    check(cudaGetDeviceProperties(&properties_, index), "reading the GPU's properties");
  }

  std::string name() const override { return fmt::format("cuda:{}", index_); }
  std::string description() const override { return fmt::format("cuda:{} {}", index_, properties_.name); }
  bool is_cuda() const override { return true; }
  bool has_fp8() const override { return properties_.major * 10 + properties_.minor >= 89; }

  std::string versions() const override {
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "reading the driver's version");
    check(cudaRuntimeGetVersion(&runtime), "reading the runtime's version");
    return fmt::format("driver for CUDA {}, runtime {}, compute capability {}.{}", version_text(driver),
                       version_text(runtime), properties_.major, properties_.minor);
  }

  std::string pci_bus_id() const override {
    char id[32] = "";
    if (cudaDeviceGetPCIBusId(id, sizeof(id), index_) == cudaSuccess) return id;
    cudaGetLastError();
    return {};
  }

  int64_t total_memory() const override { return static_cast<int64_t>(properties_.totalGlobalMem); }

  int64_t free_memory() const override {
    c10::cuda::CUDAGuard guard(index());
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "reading free GPU memory");
    return static_cast<int64_t>(free);
  }

  int64_t room() const override {
    int64_t unused = 0;  // what graphs hold is theirs
    for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments)
      if (segment.device == index() && segment.owner_private_pool_id == at::cuda::MempoolId_t{0, 0})
        unused += static_cast<int64_t>(segment.total_size - segment.allocated_size);
    const int64_t left = limit_ - memory_stats().reserved;  // to be asked from the device
    return std::min(free_memory(), std::max<int64_t>(0, left)) + unused;
  }

  MemoryStats memory_stats() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index());
    const auto& allocated = stats.allocated_bytes[0];  // 0: large and small blocks together
    const auto& reserved = stats.reserved_bytes[0];
    return {allocated.current, allocated.peak, reserved.current, reserved.peak};
  }

  void reset_peak_memory() override { c10::cuda::CUDACachingAllocator::resetPeakStats(index()); }

  void empty_cache() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  void use_pools(bool on) override { c10::cuda::CUDACachingAllocator::enable(on); }

  void limit_memory(int64_t bytes) override {
    limit_ = std::min(bytes, total_memory());
    const double share = static_cast<double>(limit_) / static_cast<double>(total_memory());
    c10::cuda::CUDACachingAllocator::setMemoryFraction(share, index());
  }

  double data_sheet_flops() const override {
    const std::string name = properties_.name;
    for (const auto& [part, teraflops] : {std::pair{"H200", 989.5},
                                          {"H100", 989.5},
                                          {"H800", 989.5},
                                          {"B200", 2250.0},
                                          {"A100", 312.0},
                                          {"A800", 312.0},
                                          {"L40S", 362.0},
                                          {"4090", 165.2},
                                          {"3090", 71.0}})
      if (name.find(part) != std::string::npos) return teraflops * 1e12;
    return 0;
  }

  void* allocate_host(size_t size) override {
    if (size == 0) return nullptr;
    c10::cuda::CUDAGuard guard(index());
    void* memory = nullptr;
    const auto status = cudaHostAlloc(&memory, size, cudaHostAllocDefault);
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw device_error(
          "cannot pin {} bytes of host memory: {}. Use smaller batches or fewer of them in advance.", size,
          cudaGetErrorString(status));
    }
    return memory;
  }

  void free_host(void* memory) noexcept override {
    if (memory) cudaFreeHost(memory);  // may fail once the driver shuts down at exit, which frees it anyway
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    const std::lock_guard alone(captures());
    c10::cuda::CUDAGuard guard(index());
    synchronize();  // a capture cannot wait for what runs on other streams
    empty_cache();  // graphs have memory of their own, and what ran before will not need its any more
    // Always the same stream: the memory of a graph is only ever reused on the stream that it was made on.
    if (!capture_stream_) capture_stream_ = c10::cuda::getStreamFromPool(false, index());
    const c10::cuda::CUDAStreamGuard aside(*capture_stream_);
    auto& known = pools_[std::this_thread::get_id()];
    auto pool = known.lock();
    if (!pool) known = pool = std::make_shared<const at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    return std::make_unique<CudaGraph>(work, pool);
  }

  void forbid_syncs(bool on) override {
    c10::cuda::warning_state().set_sync_debug_mode(on ? c10::cuda::SyncDebugMode::L_ERROR
                                                      : c10::cuda::SyncDebugMode::L_DISABLED);
  }

  void synchronize() override {
    c10::cuda::CUDAGuard guard(index());
    check(cudaDeviceSynchronize(), "waiting for the GPU");
  }

  CopySpeed measure_copies(size_t size) override {
    c10::cuda::CUDAGuard guard(index());
    DeviceMemory there(size);
    HostBuffer pinned(*this, size), pageable(cpu_device(), size);
    std::memset(pinned.data(), 1,
                size);  // untouched pages would all be the one page of zeros, and in the cache
    std::memset(pageable.data(), 1, size);
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
      return best_speed(size, [&] {
        check(cudaMemcpy(to, from, size, kind), "copying");
        check(cudaDeviceSynchronize(), "waiting for a copy");
      });
    };
    CopySpeed speed;
    speed.pinned_to_device = copy(there.data(), pinned.data(), cudaMemcpyHostToDevice);
    speed.pinned_from_device = copy(pinned.data(), there.data(), cudaMemcpyDeviceToHost);
    speed.pageable_to_device = copy(there.data(), pageable.data(), cudaMemcpyHostToDevice);
    speed.pageable_from_device = copy(pageable.data(), there.data(), cudaMemcpyDeviceToHost);
    return speed;
  }

 private:
  c10::DeviceIndex index() const { return static_cast<c10::DeviceIndex>(index_); }

  int index_;
  cudaDeviceProp properties_{};
  int64_t limit_ = std::numeric_limits<int64_t>::max();
  // Under captures():
  std::optional<c10::cuda::CUDAStream> capture_stream_;
  /// By thread: another one's graphs may be replayed while what a graph has left is still read. A pool that
  /// no graph uses any more is void.
  std::map<std::thread::id, std::weak_ptr<const at::cuda::MempoolId_t>> pools_;
};

class CudaBackend : public DeviceBackend {
 public:
  std::string kind() const override { return "cuda"; }

  int count() override {
    if (count_ < 0 && (status_ = cudaGetDeviceCount(&count_)) != cudaSuccess) {
      cudaGetLastError();
      count_ = 0;
    }
    return count_;
  }

  std::string why_none() override {
    if (count() > 0) return {};
    if (status_ == cudaSuccess || status_ == cudaErrorNoDevice)
      return "the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide it).";
    return fmt::format("the driver says: {}.", cudaGetErrorString(status_));
  }

  std::unique_ptr<Device> open(int index) override { return std::make_unique<CudaDevice>(index); }

 private:
  int count_ = -1;
  cudaError_t status_ = cudaSuccess;
};

[[maybe_unused]] const bool registered = [] {
  register_device_backend(std::make_unique<CudaBackend>());
  return true;
}();

}  // namespace

}  // namespace tightloop::cuda
