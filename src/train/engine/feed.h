#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "train/engine/staging.h"

namespace c10 {
struct Event;
}

namespace tightloop {

struct FeedOptions {
  bool copy_stream = true;  // copies run beside the computation
  bool ahead = true;        // the next micro-batch is copied while this one is computed with
  bool time = true;         // the seconds of each copy are measured, on the device
};

/// Micro-batches on their way to the device: each is staged in host memory, copied by a stream of its own
/// into one of two slots, and from there into the buffer that the step reads. Streams wait for each other by
/// events; the host waits for nothing. On the CPU staged memory is read as it is.
class Feed {
 public:
  /// The next micro-batch in host memory (pinned for a GPU), or none after the last.
  using Stage = std::function<std::optional<Staged>()>;

  Feed(at::Device device, Stage stage, const FeedOptions& options);
  ~Feed();

  /// The next micro-batch, whose copy has started; valid until the next call.
  const Staged& next();
  /// Starts on the one after it: to be called once the work on this one is under way.
  void prefetch();
  /// Puts its bytes into `buffer`, on the current stream, as soon as they are on the device. On the CPU
  /// `buffer` becomes the staged memory itself.
  void deliver(at::Tensor& buffer);
  /// Seconds that copies took so far, where they are timed. Waits for the device.
  double copy_seconds() const;

 private:
  struct Slot {
    std::optional<Staged> staged;
    at::Tensor buffer;  // on the device
    std::unique_ptr<c10::Event> ready, free;
  };

  void fill(Slot& slot);

  const at::Device device_;
  const Stage stage_;
  const FeedOptions options_;
  std::optional<c10::Stream> stream_;
  std::array<Slot, 2> slots_;
  size_t current_ = 1;
  at::Tensor clock_;  // fp64 (2), on the device: a clock and the seconds so far
};

}  // namespace tightloop
