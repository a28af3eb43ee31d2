#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace tightloop::testing {

/// Calls of operators below autograd, as long as this lives: `before` sees the name of each one that is about
/// to run, and may throw.
class WatchedOperators {
 public:
  explicit WatchedOperators(std::function<void(const std::string& name)> before);
  ~WatchedOperators();
  WatchedOperators(const WatchedOperators&) = delete;
  WatchedOperators& operator=(const WatchedOperators&) = delete;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

/// The CPU, with graphs as a GPU has them: a capture notes the operators that the work calls, below autograd,
/// with the tensors that they read and write; a replay runs those operators again, on the same memory, and
/// nothing else of the work.
class RecordedDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }
  std::string description() const override { return "cpu with recorded graphs"; }
  bool is_cuda() const override { return true; }  // only those capture
  std::string versions() const override { return {}; }
  int64_t total_memory() const override { return cpu_device().total_memory(); }
  int64_t free_memory() const override { return cpu_device().free_memory(); }
  MemoryStats memory_stats() const override { return {}; }
  void reset_peak_memory() override {}
  void empty_cache() override {}
  void use_pools(bool) override {}
  void limit_memory(int64_t) override {}
  double data_sheet_flops() const override { return 0; }
  void* allocate_host(size_t size) override { return cpu_device().allocate_host(size); }
  void free_host(void* memory) noexcept override { cpu_device().free_host(memory); }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;
  void forbid_syncs(bool) override {}
  void synchronize() override {}
  CopySpeed measure_copies(size_t) override { return {}; }
};

}  // namespace tightloop::testing
