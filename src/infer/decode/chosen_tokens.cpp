#include "infer/decode/chosen_tokens.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace tightloop {

namespace {

/// Memory of the host that a copy to or from the device may use while the host goes on. Torch's allocator
/// gives it away again once that copy is done.
at::Tensor host_numbers(int64_t count, at::ScalarType dtype, at::Device device) {
  return at::empty({count}, at::TensorOptions(dtype).pinned_memory(!device.is_cpu()));
}

}  // namespace

template <class Number>
at::Tensor send_numbers(std::span<const Number> numbers, at::Device device) {
  auto host =
      host_numbers(static_cast<int64_t>(numbers.size()), c10::CppTypeToScalarType<Number>::value, device);
  std::ranges::copy(numbers, host.template mutable_data_ptr<Number>());
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}
template at::Tensor send_numbers<int32_t>(std::span<const int32_t>, at::Device);
template at::Tensor send_numbers<int64_t>(std::span<const int64_t>, at::Device);
template at::Tensor send_numbers<double>(std::span<const double>, at::Device);

ChosenTokens::ChosenTokens(const at::Tensor& ids) : ids_(host_numbers(ids.size(0), at::kLong, ids.device())) {
  ids_.copy_(ids, /*non_blocking=*/true);
  if (ids.is_cpu()) return;
  there_ = std::make_unique<c10::Event>(ids.device().type());
  there_->record(c10::impl::VirtualGuardImpl(ids.device().type()).getStream(ids.device()));
}

std::span<const int64_t> ChosenTokens::wait() {
  if (there_) there_->synchronize();
  return {ids_.const_data_ptr<int64_t>(), static_cast<size_t>(ids_.size(0))};
}

}  // namespace tightloop
