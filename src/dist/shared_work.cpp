#include "dist/shared_work.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/interrupt.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr size_t kLongest = 1000;  // bytes of an error that travel

std::string broadcast_text(Processes& processes, const std::string& text, int root) {
  const at::Tensor bytes = at::zeros({static_cast<int64_t>(kLongest) + 1}, at::kByte);
  auto* first = reinterpret_cast<char*>(bytes.mutable_data_ptr<uint8_t>());
  if (processes.rank() == root) std::copy_n(text.begin(), std::min(text.size(), kLongest), first);
  processes.broadcast(bytes, root);
  return first;  // up to the 0 after it
}

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
    work.why = first_line(error.what());
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
  if (work.failed >= 0) work.why = broadcast_text(processes, work.why, work.failed);
  return work;
}

}  // namespace tightloop
