#include "core/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/cpu.h"
#include "core/error.h"
#include "core/plugin.h"

namespace tightloop {

namespace {

/// A line of /proc/meminfo in bytes; 0 when there is none.
int64_t memory_info(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  for (int64_t kilobytes; file >> word;)
    if (word == key + ":" && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

/// The number in a file; nothing when there is none ("max", say).
std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream stream(file);
  int64_t bytes = 0;
  if (stream >> bytes) return bytes;
  return std::nullopt;
}

/// The number behind a key in a file of "key number" lines; 0 when there is none.
int64_t number_behind(const std::string& key, const std::string& file) {
  std::ifstream stream(file);
  std::string word;
  for (int64_t number; stream >> word >> number;)
    if (word == key) return number;
  return 0;
}

/// Folders of this process's control group for memory, from its own up to the root: any of them may set a
/// limit. In a container the root is the container's.
struct ControlGroup {
  std::string limit, used, stat;  // files
};
std::vector<ControlGroup> control_groups() {
  std::vector<ControlGroup> groups;
  const auto add = [&](const std::string& root, std::string path, const char* limit, const char* used) {
    for (;;) {
      groups.push_back({root + path + limit, root + path + used, root + path + "/memory.stat"});
      if (path.empty()) return;
      path.resize(path.rfind('/'));
    }
  };
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    const std::string inside = path == "/" ? "" : path;
    if (controllers.empty()) add("/sys/fs/cgroup", inside, "/memory.max", "/memory.current");
    if (controllers.find("memory") != std::string::npos)
      add("/sys/fs/cgroup/memory", inside, "/memory.limit_in_bytes", "/memory.usage_in_bytes");
  }
  return groups;
}

class CpuDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }
  std::string description() const override { return "cpu"; }
  bool is_cuda() const override { return false; }
  std::string versions() const override { return {}; }
  int64_t total_memory() const override {
    int64_t total = memory_info("MemTotal");
    for (const ControlGroup& group : control_groups())
      total = std::min(total, number_in(group.limit).value_or(total));
    return total;
  }
  int64_t free_memory() const override {
    int64_t free = memory_info("MemAvailable");
    for (const ControlGroup& group : control_groups()) {
      const auto limit = number_in(group.limit), used = control_group_use(group.used, group.stat);
      if (limit && used) free = std::min(free, std::max<int64_t>(0, *limit - *used));
    }
    return free;
  }
  MemoryStats memory_stats() const override { return {}; }
  void reset_peak_memory() override {}
  void empty_cache() override {}
  void limit_memory(int64_t) override {}
  void use_pools(bool) override {}
  double data_sheet_flops() const override { return 0; }
  void* allocate_host(size_t size) override {
    if (size == 0) return nullptr;
    void* memory = nullptr;
    if (::posix_memalign(&memory, 64, size) != 0)
      throw device_error("out of memory: {} bytes for a host buffer. Use a smaller batch.", size);
    return memory;
  }
  void free_host(void* memory) noexcept override { std::free(memory); }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }
  void forbid_syncs(bool) override {}
  void synchronize() override {}
  CopySpeed measure_copies(size_t) override { return {}; }
};

struct Registry {
  std::mutex mutex;
  std::unique_ptr<DeviceBackend> cuda;
  std::map<int, std::unique_ptr<Device>> opened;
};

// Never destroyed: buffers of static objects may be given back after main.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

Device& open_cuda(const std::string& name, int index) {
  const std::string reason = why_no_cuda();
  if (!reason.empty())
    throw device_error("device '{}' is not usable: {} Name the device cpu or auto to go on without a GPU.",
                       name, reason);
  auto& known = registry();
  std::lock_guard lock(known.mutex);
  if (index >= known.cuda->count())
    throw device_error("there is no device '{}': this machine shows {} GPU(s), cuda:0 to cuda:{}.", name,
                       known.cuda->count(), known.cuda->count() - 1);
  auto& slot = known.opened[index];
  if (!slot) slot = known.cuda->open(index);
  return *slot;
}

}  // namespace

std::optional<int64_t> control_group_use(const std::string& used, const std::string& stat) {
  auto bytes = number_in(used);
  // The first version counts a group's children under names of their own.
  const int64_t cached =
      std::max(number_behind("inactive_file", stat), number_behind("total_inactive_file", stat));
  if (bytes) *bytes = std::max<int64_t>(0, *bytes - cached);
  return bytes;
}

HostBuffer::~HostBuffer() {
  if (data_) device_->free_host(data_);
}
HostBuffer::HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void register_device_backend(std::unique_ptr<DeviceBackend> backend) {
  auto& known = registry();
  std::lock_guard lock(known.mutex);
  if (backend->kind() == "cuda" && !known.cuda) known.cuda = std::move(backend);
}

Device& cpu_device() {
  static auto* instance = [] {
    avoid_half_offered_amx();  // programs that link the libraries have no main() of ours
    return new CpuDevice;
  }();
  return *instance;
}

int cuda_device_count() {
  if (!load_cuda_plugin().loaded) return 0;
  auto& known = registry();
  std::lock_guard lock(known.mutex);
  return known.cuda ? known.cuda->count() : 0;
}

std::string why_no_cuda() {
  const PluginState& plugin = load_cuda_plugin();
  if (!plugin.loaded) return plugin.reason;
  if (cuda_device_count() > 0) return {};
  auto& known = registry();
  std::lock_guard lock(known.mutex);
  return known.cuda ? known.cuda->why_none() : "the CUDA plug-in was loaded but registered no device.";
}

Device& device(const std::string& name) {
  if (name == "cpu") return cpu_device();
  if (name == "auto") return cuda_device_count() > 0 ? open_cuda("cuda:0", 0) : cpu_device();
  if (name == "cuda") return open_cuda(name, 0);
  int index = -1;
  if (name.starts_with("cuda:")) {
    const char *begin = name.data() + 5, *end = name.data() + name.size();
    const auto [stop, status] = std::from_chars(begin, end, index);
    if (status != std::errc() || stop != end) index = -1;
  }
  if (index < 0) throw usage_error("there is no device '{}': say auto, cpu, cuda or cuda:N.", name);
  return open_cuda(name, index);
}

}  // namespace tightloop
