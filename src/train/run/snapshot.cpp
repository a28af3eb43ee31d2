#include "train/run/snapshot.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <new>

namespace tightloop {

namespace {

constexpr int64_t kDeviceReserve = int64_t{1} << 30;  // left to training beside the copies
constexpr int64_t kHostReserve = int64_t{1} << 29;

/// Of tensors on a device, and of those on the host.
struct SnapshotBytes {
  int64_t device = 0, host = 0;
};
SnapshotBytes bytes_in(const std::vector<NamedTensors>& lists) {
  SnapshotBytes bytes;
  for (const NamedTensors& list : lists)
    for (const auto& [name, tensor] : list)
      (tensor.is_cpu() ? bytes.host : bytes.device) += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

bool host_has(int64_t bytes) { return bytes == 0 || cpu_device().free_memory() >= bytes + kHostReserve; }

/// Nothing where memory runs out: of the host, torch says so in an error of no kind of its own.
std::optional<std::vector<NamedTensors>> copies(const std::vector<NamedTensors>& lists, bool to_host) try {
  std::vector<NamedTensors> made;
  for (const NamedTensors& list : lists) {
    NamedTensors& copied = made.emplace_back();
    for (const auto& [name, tensor] : list) {
      const at::Tensor source = tensor.detach();
      copied.emplace_back(name, to_host && !source.is_cpu() ? source.to(at::kCPU) : source.clone());
    }
  }
  return made;
} catch (const c10::Error&) {
  return {};
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace

std::optional<Snapshot> Snapshot::take(const std::vector<NamedTensors>& tensors, Device& device) {
  c10::NoGradGuard no_grad;
  Snapshot snapshot;
  const SnapshotBytes bytes = bytes_in(tensors);
  if (bytes.device > 0 && device.room() >= bytes.device + kDeviceReserve && host_has(bytes.host)) {
    if (auto made = copies(tensors, /*to_host=*/false)) {
      snapshot.tensors_ = std::move(*made);
      snapshot.device_ = at::Device(device.name());
      snapshot.copied_ = std::make_shared<c10::Event>(snapshot.device_->type());
      snapshot.copied_->record(
          c10::impl::VirtualGuardImpl(snapshot.device_->type()).getStream(*snapshot.device_));
      return snapshot;
    }
  }
  if (!host_has(bytes.host + bytes.device)) return {};
  auto made = copies(tensors, /*to_host=*/true);
  if (!made) return {};
  snapshot.tensors_ = std::move(*made);
  return snapshot;
}

Snapshot Snapshot::of(std::vector<NamedTensors> tensors) {
  Snapshot snapshot;
  snapshot.tensors_ = std::move(tensors);
  return snapshot;
}

void Snapshot::share(size_t which, const NamedTensors& tensors) {
  tensors_[which].insert(tensors_[which].end(), tensors.begin(), tensors.end());
}

struct Snapshot::Reading::Guard {
  explicit Guard(const c10::Stream& stream) : stream(stream) {}
  c10::StreamGuard stream;
};

Snapshot::Reading::Reading(const Snapshot& snapshot) {
  if (!snapshot.device_) return;
  const at::Device device = *snapshot.device_;
  const c10::Stream stream =
      c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  snapshot.copied_->block(stream);
  guard_ = std::make_unique<Guard>(stream);
}

Snapshot::Reading::~Reading() = default;

}  // namespace tightloop
