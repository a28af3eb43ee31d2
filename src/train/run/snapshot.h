#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <optional>

#include "core/device.h"
#include "model/files/safetensors.h"

namespace tightloop {

/// Tensors as they were at one moment of the device's work, to be read by another thread while training goes
/// on.
class Snapshot {
 public:
  /// Copies them on the device where it has room, which takes as long as its memory needs to be read and
  /// written, else to the host. Nothing where neither has room: then whoever reads them must be waited for.
  static std::optional<Snapshot> take(const std::vector<NamedTensors>& tensors, Device& device);
  /// The tensors themselves, for a reader that is waited for.
  static Snapshot of(std::vector<NamedTensors> tensors);

  /// While one lives, this thread's work on the device is on a stream of its own, after the copies.
  class Reading {
   public:
    explicit Reading(const Snapshot& snapshot);
    ~Reading();

   private:
    struct Guard;
    std::unique_ptr<Guard> guard_;
  };

  /// Adds tensors that nobody changes, and of which no copy is needed, to one of the lists.
  void share(size_t which, const NamedTensors& tensors);

  const NamedTensors& operator[](size_t which) const { return tensors_[which]; }

 private:
  std::vector<NamedTensors> tensors_;
  std::shared_ptr<c10::Event> copied_;  // none: they are on the host
  std::optional<at::Device> device_;
};

}  // namespace tightloop
