#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tightloop {

/// Every time the host waits for the device (or would have to, on a device: the CPU counts alike), by cause.
/// The step itself makes none; a test asserts it.
class Syncs {
 public:
  void count(const std::string& cause) { ++causes_[cause]; }
  int64_t total() const;
  int64_t of(const std::string& cause) const;
  /// Those that came after `before`, an earlier state of this.
  Syncs since(const Syncs& before) const;
  const std::map<std::string, int64_t>& causes() const { return causes_; }

 private:
  std::map<std::string, int64_t> causes_;
};

}  // namespace tightloop
