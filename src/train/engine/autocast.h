#pragma once

#include <ATen/autocast_mode.h>

namespace tightloop {

/// Runs what torch lists for it in a 16-bit dtype within a scope, as torch.autocast does. Our own models do
/// not need it (their weights are in the compute dtype already); code that mixes in plain ATen may.
class Autocast {
 public:
  Autocast(at::DeviceType device, at::ScalarType dtype)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, dtype);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

}  // namespace tightloop
