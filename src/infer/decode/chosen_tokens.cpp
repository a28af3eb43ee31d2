#include "infer/decode/chosen_tokens.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace tightloop {

namespace {

/// Memory of the host that a copy to or from the device may use while the host goes on. Torch's allocator
/// gives it away again once that copy is done.
at::Tensor host_numbers(int64_t count, at::Device device) {
  return at::empty({count}, at::TensorOptions(at::kInt).pinned_memory(!device.is_cpu()));
}

}  // namespace

at::Tensor send_numbers(std::span<const int32_t> numbers, at::Device device) {
  auto host = host_numbers(static_cast<int64_t>(numbers.size()), device);
  std::ranges::copy(numbers, host.mutable_data_ptr<int32_t>());
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}

ChosenTokens::ChosenTokens(const at::Tensor& ids) : ids_(host_numbers(ids.size(0), ids.device())) {
  ids_.copy_(ids, /*non_blocking=*/true);
  if (ids.is_cpu()) return;
  there_ = std::make_unique<c10::Event>(ids.device().type());
  there_->record(c10::impl::VirtualGuardImpl(ids.device().type()).getStream(ids.device()));
}

std::span<const int32_t> ChosenTokens::wait() {
  if (there_) there_->synchronize();
  return {ids_.const_data_ptr<int32_t>(), static_cast<size_t>(ids_.size(0))};
}

}  // namespace tightloop
