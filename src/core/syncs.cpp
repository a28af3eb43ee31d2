#include "core/syncs.h"

namespace tightloop {

int64_t Syncs::total() const {
  int64_t total = 0;
  for (const auto& [cause, times] : causes_) total += times;
  return total;
}

int64_t Syncs::of(const std::string& cause) const {
  const auto found = causes_.find(cause);
  return found == causes_.end() ? 0 : found->second;
}

}  // namespace tightloop
