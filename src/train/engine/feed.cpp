#include "train/engine/feed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <stdexcept>

#include "ops/pointwise/stamp.h"

namespace tightloop {

namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Feed::Feed(at::Device device, Stage stage, const FeedOptions& options)
    : device_(device), stage_(std::move(stage)), options_(options) {
  clock_ = at::zeros({2}, at::TensorOptions(at::kDouble).device(device));
  if (device.is_cpu()) return;
  if (options.copy_stream)
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*high=*/true);
  for (Slot& slot : slots_) {
    slot.ready = std::make_unique<c10::Event>(device.type());
    slot.free = std::make_unique<c10::Event>(device.type());
  }
}

Feed::~Feed() = default;

void Feed::fill(Slot& slot) {
  slot.staged = stage_();
  if (!slot.staged || device_.is_cpu()) return;
  c10::NoGradGuard no_grad;
  const int64_t bytes = slot.staged->layout.bytes();
  if (!slot.buffer.defined() || slot.buffer.size(0) < bytes) {
    slot.buffer = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
    slot.free->record(current_stream(device_));  // memory that other work may still be using
  }
  const c10::Stream stream = stream_.value_or(current_stream(device_));
  slot.free->block(stream);
  const c10::StreamGuard guard(stream);
  if (options_.time) ops::stamp_(clock_, 0);
  slot.buffer.narrow(0, 0, bytes).copy_(slot.staged->buffer, slot.staged->buffer.is_pinned());
  if (options_.time) ops::lap_(clock_, 0, 1);
  slot.ready->record(stream);
}

const Staged& Feed::next() {
  slots_[current_].staged.reset();
  current_ = 1 - current_;
  Slot& slot = slots_[current_];
  if (!slot.staged) fill(slot);  // the first one, or nothing is done ahead
  if (!slot.staged) throw std::logic_error("there is no micro-batch after the last");
  return *slot.staged;
}

void Feed::prefetch() {
  Slot& slot = slots_[1 - current_];
  if (options_.ahead && !device_.is_cpu() && !slot.staged) fill(slot);
}

double Feed::copy_seconds() const { return clock_[1].item<double>(); }

void Feed::deliver(at::Tensor& buffer) {
  Slot& slot = slots_[current_];
  if (device_.is_cpu()) {
    buffer = slot.staged->buffer;
    return;
  }
  c10::NoGradGuard no_grad;
  const int64_t bytes = slot.staged->layout.bytes();
  if (!buffer.defined()) buffer = at::empty({bytes}, slot.buffer.options());
  const c10::Stream stream = current_stream(device_);
  slot.ready->block(stream);
  buffer.copy_(slot.buffer.narrow(0, 0, bytes));
  slot.free->record(stream);
}

}  // namespace tightloop
