#pragma once

#include <cstdint>

namespace tightloop {

/// Counts heap allocations (operator new, all threads) while it lives: how benches and tests know that a hot
/// path makes none. The program's operator new costs one branch more for it. Sanitizers bring their own
/// operator new; then available() is false and the count stays 0.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;
  uint64_t count() const;
  static bool available();

 private:
  uint64_t start_;
};

}  // namespace tightloop
