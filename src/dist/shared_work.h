#pragma once

#include <functional>
#include <string>

#include "dist/processes.h"

namespace tightloop {

/// How work went that every process did a share of: the same in all of them.
struct SharedWork {
  int failed = -1;           // the first rank whose share failed; -1: none
  std::string why{};         // its error
  bool interrupted = false;  // a signal came in some process, whose share may be missing

  bool whole() const { return failed < 0 && !interrupted; }
  /// "process 2: why"; without the number where there is one process.
  std::string text(const Processes& processes) const;
};

/// Does `share` here and meets the others, whether it threw or not: so that nobody waits for one that has
/// failed, and all go on or give up together. `share` itself calls no collective. Only a dead peer makes it
/// throw.
SharedWork share_work(Processes& processes, const std::function<void()>& share);

}  // namespace tightloop
