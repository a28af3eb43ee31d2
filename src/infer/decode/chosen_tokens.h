#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <span>

namespace tightloop {

/// Numbers as a tensor on the device. On a GPU the host does not wait for the copy.
template <class Number>  // int32_t, int64_t or double
at::Tensor send_numbers(std::span<const Number> numbers, at::Device device);

/// Token ids on their way from the device to the host, which may look at them later.
class ChosenTokens {
 public:
  /// int64 (N). Their memory may be written again by what is started afterwards.
  explicit ChosenTokens(const at::Tensor& ids);

  /// Waits until they are there.
  std::span<const int64_t> wait();

 private:
  at::Tensor ids_;
  std::unique_ptr<c10::Event> there_;
};

}  // namespace tightloop
