#include "dist/peers.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/interrupt.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr std::chrono::milliseconds kLook{500};  // how often a waiting call looks whether all are alive

/// A launcher's store outlives us, and others may meet there after us: in this process, or when it is
/// started again.
std::string next_prefix(const Rendezvous& rendezvous) {
  static int met = 0;
  return fmt::format("tightloop/{}/{}", rendezvous.attempt, met++);
}

}  // namespace

Peers::Peers(const Rendezvous& rendezvous, const Processes::Timing& timing)
    : rendezvous_(rendezvous), prefix_(next_prefix(rendezvous)), exceptions_(std::uncaught_exceptions()) {
  // c10d's own messages, with stack traces, would stand between ours.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  const InterruptEndsProgram at_once;  // c10d does not stop waiting for peers
  try {
    store_ = connect(timing, /*serve=*/!rendezvous.store_runs && rendezvous.rank == 0);
    join(timing);
    gloo_ =
        make_gloo_group(named("gloo"), rendezvous.rank, rendezvous.world, rendezvous.address, timing.join);
    const auto own = c10::make_intrusive<c10d::PrefixStore>(prefix_, connect(timing, /*serve=*/false));
    const std::string holder = rendezvous.store_runs ? "the launcher, which serves the processes' store,"
                                                     : "rank 0, which serves the processes' store,";
    heartbeat_ = std::make_unique<Heartbeat>(own, rendezvous.rank, rendezvous.world,
                                             HeartbeatTiming{timing.beat, timing.missed}, holder,
                                             [this] { abort_gpu(); });
  } catch (const c10::Error& error) {
    throw Error(
        ExitCode::kFailure,
        fmt::format("rank {} of {} could not meet the others at {}:{} (MASTER_ADDR, MASTER_PORT): {}. "
                    "Check that the port is free there and that all processes were started.",
                    rendezvous.rank, rendezvous.world, rendezvous.address, rendezvous.port,
                    first_line(error.what_without_backtrace())));
  }
}

Peers::~Peers() {
  const bool lost = failed_ || !heartbeat_->loss().empty();
  if (lost || std::uncaught_exceptions() > exceptions_) {
    heartbeat_->fail();
  } else {
    heartbeat_->finish();
  }
  if (!heartbeat_->stop()) heartbeat_.release();
  // Threads that wait for a dead peer cannot be joined; they end with the process, which is about to.
  if (lost) gloo_.release(), gpu_.release(), store_.release();
}

void Peers::check() {
  const std::string loss = heartbeat_->loss();
  if (!loss.empty()) throw failure(loss);
}

c10d::Backend& Peers::group_of(const at::Tensor& tensor) {
  check();
  if (tensor.is_cpu()) return *gloo_;
  std::lock_guard lock(gpu_mutex_);
  if (!gpu_) gpu_ = make_gpu_group(named("gpu"), rendezvous_.rank, rendezvous_.world);
  return *gpu_;
}

void Peers::wait(const Work& work, const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    check();  // a group that was aborted would leave the stream free to go on
    work->wait();
    return;
  }
  while (true) {
    try {
      work->wait(kLook);
      return;
    } catch (const std::exception& error) {  // that it is not there yet, or that it failed
      if (work->isCompleted() && !work->isSuccess()) {
        const std::string loss = heartbeat_->find_loss();
        throw failure(loss.empty() ? fmt::format("the connection to another process broke: {}",
                                                 first_line(error.what()))
                                   : loss);
      }
    }
    check();
  }
}

Store Peers::connect(const Processes::Timing& timing, bool serve) const {
  c10d::TCPStoreOptions options;
  options.port = rendezvous_.port;
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = timing.join;
  return c10::make_intrusive<c10d::TCPStore>(rendezvous_.address, options);
}

Store Peers::named(const std::string& name) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix_ + "/" + name, store_);
}

void Peers::join(const Processes::Timing& timing) {
  const auto common = c10::make_intrusive<c10d::PrefixStore>(prefix_, store_);
  if (common->add(Heartbeat::key(rendezvous_.rank), 1) != 1)
    throw usage_error("two processes have RANK {}. Each needs its own, from 0 to {}.", rendezvous_.rank,
                      rendezvous_.world - 1);
  for (int rank = 0; rank < rendezvous_.world; ++rank) {
    try {
      common->wait({Heartbeat::key(rank)}, timing.join);
    } catch (const c10::Error&) {
      throw Error(ExitCode::kFailure,
                  fmt::format("rank {} of {} has not arrived at {}:{} within {} s. Check that all processes "
                              "were started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",
                              rank, rendezvous_.world, rendezvous_.address, rendezvous_.port,
                              std::chrono::duration_cast<std::chrono::seconds>(timing.join).count()));
    }
  }
}

void Peers::abort_gpu() {
  std::lock_guard lock(gpu_mutex_);
  if (gpu_) gpu_->abort();
}

Error Peers::failure(const std::string& loss) {
  failed_ = true;
  return {ExitCode::kFailure,
          fmt::format("{}. This process (rank {}) cannot go on without it. See what that one said last, then "
                      "start all of them again; --resume goes on from the last checkpoint.",
                      loss, rendezvous_.rank)};
}

}  // namespace tightloop
