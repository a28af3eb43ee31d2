#include "dist/shared_work.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "core/interrupt.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr size_t kLongest = 1000;  // bytes of an error that travel

}  // namespace

std::string SharedWork::text(const Processes& processes) const {
  return processes.world() > 1 ? fmt::format("process {}: {}", failed, why) : why;
}

SharedWork share_work(Processes& processes, const std::function<void()>& share) {
  SharedWork work;
  bool failed = false;
  try {
    share();
  } catch (const std::exception& error) {
    failed = true;
    work.why = first_line(error.what()).substr(0, kLongest);
  }
  // A share that a signal ended has not failed.
  work.interrupted = interrupted();
  failed = failed && !work.interrupted;
  if (!processes.several()) {
    if (failed) work.failed = processes.rank();
    return work;
  }
  enum { kFailed, kInterrupted, kSize };
  const at::Tensor by_rank = at::zeros({processes.world(), kSize}, at::kLong);
  auto* said = by_rank.mutable_data_ptr<int64_t>();
  said[processes.rank() * kSize + kFailed] = failed;
  said[processes.rank() * kSize + kInterrupted] = work.interrupted;
  processes.sum_(by_rank);
  for (int rank = processes.world() - 1; rank >= 0; --rank) {
    if (said[rank * kSize + kFailed] != 0) work.failed = rank;
    work.interrupted = work.interrupted || said[rank * kSize + kInterrupted] != 0;
  }
  if (work.failed >= 0) work.why = processes.broadcast_text(work.why, work.failed);
  return work;
}

}  // namespace tightloop
