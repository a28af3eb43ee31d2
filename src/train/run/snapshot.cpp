#include "train/run/snapshot.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace tightloop {

namespace {

constexpr int64_t kDeviceReserve = int64_t{1} << 30;  // left to training beside the copies
constexpr int64_t kHostReserve = int64_t{1} << 29;

int64_t bytes_on_device(const std::vector<NamedTensors>& lists) {
  int64_t bytes = 0;
  for (const NamedTensors& list : lists)
    for (const auto& [name, tensor] : list)
      if (!tensor.is_cpu()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

std::vector<NamedTensors> copies(const std::vector<NamedTensors>& lists, bool to_host) {
  std::vector<NamedTensors> made;
  for (const NamedTensors& list : lists) {
    NamedTensors& copied = made.emplace_back();
    for (const auto& [name, tensor] : list) {
      const at::Tensor source = tensor.detach();
      copied.emplace_back(name, to_host && !source.is_cpu() ? source.to(at::kCPU) : source.clone());
    }
  }
  return made;
}

}  // namespace

std::optional<Snapshot> Snapshot::take(const std::vector<NamedTensors>& tensors, Device& device) {
  c10::NoGradGuard no_grad;
  Snapshot snapshot;
  int64_t all = 0;
  for (const NamedTensors& list : tensors) all += static_cast<int64_t>(bytes_of(list));
  const int64_t there = bytes_on_device(tensors);
  try {
    if (there > 0 && device.free_memory() >= there + kDeviceReserve) {
      snapshot.tensors_ = copies(tensors, /*to_host=*/false);
      snapshot.device_ = at::Device(device.name());
      snapshot.copied_ = std::make_shared<c10::Event>(snapshot.device_->type());
      snapshot.copied_->record(
          c10::impl::VirtualGuardImpl(snapshot.device_->type()).getStream(*snapshot.device_));
      return snapshot;
    }
    if (cpu_device().free_memory() < all + kHostReserve) return {};
    snapshot.tensors_ = copies(tensors, /*to_host=*/true);
    return snapshot;
  } catch (const c10::OutOfMemoryError&) {
    return {};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

Snapshot Snapshot::of(std::vector<NamedTensors> tensors) {
  Snapshot snapshot;
  snapshot.tensors_ = std::move(tensors);
  return snapshot;
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
