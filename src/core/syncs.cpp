#include "core/syncs.h"

namespace tightloop {

int64_t Syncs::total() const {
  int64_t total = 0;
  for (const auto& [cause, times] : causes_) total += times;
  return total;
}

Syncs Syncs::since(const Syncs& before) const {
  Syncs later;
  for (const auto& [cause, times] : causes_)
    if (times > before.of(cause)) later.causes_[cause] = times - before.of(cause);
  return later;
}

int64_t Syncs::of(const std::string& cause) const {
  const auto found = causes_.find(cause);
  return found == causes_.end() ? 0 : found->second;
}

}  // namespace tightloop
