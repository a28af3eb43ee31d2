#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tightloop::testing {

/// Counts what torch's CPU allocator hands out while it exists.
class Allocations {
 public:
  double peak() const { return static_cast<double>(state_->peak); }
  /// What of it has not been given back.
  double now() const { return static_cast<double>(state_->now); }

 private:
  struct State : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes, peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    int64_t now = 0, peak = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, state_};
};

}  // namespace tightloop::testing
