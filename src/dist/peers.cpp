#include "dist/peers.h"

#include <netdb.h>

#include <c10/util/Logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"

namespace tightloop {

namespace {

constexpr std::chrono::milliseconds kLook{500};      // how often a waiting call looks whether all are alive
constexpr std::chrono::milliseconds kTick{200};      // how often the ticker does
constexpr std::chrono::milliseconds kGrace{1500};    // for the host to notice a fault by itself
constexpr std::chrono::milliseconds kPoll{500};      // how often one that waits for others to arrive looks
constexpr std::chrono::milliseconds kTellPlace{50};  // how often rank 0 tells them where, meanwhile
constexpr std::chrono::seconds kReadFault{1};        // for others to read it, while there is no heartbeat

/// A launcher's store outlives us, and others may meet there after us in this process.
std::string next_prefix(const Rendezvous& rendezvous) {
  static int met = 0;
  return fmt::format("tightloop/{}/{}", rendezvous.run, met++);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "unknown";
}

constexpr const char* kMet = "met";  // in the store: all were there

constexpr std::chrono::seconds kSilence{3};  // after which whoever waits for others says so

/// A name that nobody knows would be asked for again and again.
void require_address(const Rendezvous& rendezvous) {
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(rendezvous.address.c_str(), nullptr, nullptr, &found);
  if (found) ::freeaddrinfo(found);
  if (problem == EAI_NONAME)
    throw usage_error("MASTER_ADDR is '{}', and no machine of that name is known here ({}).",
                      rendezvous.address, ::gai_strerror(problem));
}

}  // namespace

Peers::Peers(const Rendezvous& rendezvous, const Processes::Timing& timing, LastResort last_resort)
    : rendezvous_(rendezvous),
      prefix_(next_prefix(rendezvous)),
      exceptions_(std::uncaught_exceptions()),
      last_resort_(std::move(last_resort)) {
  // c10d's own messages, with stack traces, would stand between ours.
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  const InterruptEndsProgram at_once;  // c10d does not stop waiting for peers
  require_address(rendezvous);
  try {
    {
      const Ticker waiting(kSilence, [&, said = false]() mutable {
        if (std::exchange(said, true)) return;
        log::info("Rank {} of {} waits for the others at {}:{} (MASTER_ADDR, MASTER_PORT), up to {} s.",
                  rendezvous.rank, rendezvous.world, rendezvous.address, rendezvous.port,
                  std::chrono::duration_cast<std::chrono::seconds>(timing.join).count());
      });
      store_ = connect(timing, serves());
      if (rendezvous_.store_runs) find_place(timing);
      join(timing);
    }
    const auto own = c10::make_intrusive<c10d::PrefixStore>(prefix_, connect(timing, /*serve=*/false));
    HeartbeatPeers peers{rendezvous.rank, Heartbeat::hosts(*own, rendezvous.world),
                         rendezvous.store_runs ? Fault::kAll : 0};
    // Before the group: one that dies now would keep the others waiting for its connections.
    heartbeat_ =
        std::make_unique<Heartbeat>(own, std::move(peers), HeartbeatTiming{timing.beat, timing.missed});
    board_ = std::make_unique<Board>(
        c10::make_intrusive<c10d::PrefixStore>(prefix_ + "/board", connect(timing, /*serve=*/false)),
        [this] { check_aside(); });
    ticker_.emplace(kTick, [this] { look(); });
    gloo_ =
        make_gloo_group(named("gloo"), rendezvous.rank, rendezvous.world, rendezvous.address, timing.join);
  } catch (const Error& error) {
    if (!heartbeat_) throw;
    const Error why = fail(error);
    part(/*failing=*/true);
    throw why;
  } catch (const std::exception& error) {
    const Error failure(
        ExitCode::kFailure,
        fmt::format("rank {} of {} could not meet the others at {}:{} (MASTER_ADDR, MASTER_PORT): {}. "
                    "Check that the port is free there (a second process with RANK 0 has taken it?) and that "
                    "all processes were started.",
                    rendezvous.rank, rendezvous.world, rendezvous.address, rendezvous.port,
                    first_line(error.what())));
    if (!heartbeat_) throw failure;
    const auto fault = heartbeat_->find_fault();
    const Error why = fault ? fault->error() : fail(failure);
    part(/*failing=*/true);
    throw why;
  }
}

Peers::~Peers() { part(failed_ || std::uncaught_exceptions() > exceptions_); }

void Peers::part(bool failing) {
  const bool lost = heartbeat_->fault().has_value();
  failed_ = true;  // the ticker need not end what ends
  if (failing || lost) {
    heartbeat_->fail(heartbeat_->fault_of(rendezvous_.rank, ExitCode::kFailure, "has ended with an error."));
    heartbeat_->wait_until_heard();
  } else {
    heartbeat_->finish();
  }
  ticker_.reset();
  board_.reset();  // it asks the heartbeat
  if (!heartbeat_->stop()) heartbeat_.release();
  // Threads that wait for a dead peer cannot be joined; they end with the process, which is about to.
  if (failing || lost) gloo_.release(), gpu_.release(), store_.release();
}

void Peers::check() {
  if (const auto fault = heartbeat_->fault()) throw failure(*fault);
}

void Peers::check_aside() {
  if (const auto fault = heartbeat_->fault()) throw fault->error();
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
        if (const auto fault = heartbeat_->find_fault()) throw failure(*fault);
        throw fail(Error(ExitCode::kFailure, fmt::format("the connection to another process broke: {}",
                                                         first_line(error.what()))));
      }
    }
    check();
  }
}

Error Peers::fail(const Error& own) {
  return failure(heartbeat_->fail(heartbeat_->fault_of(rendezvous_.rank, own.code(), own.what())));
}

Error Peers::fail_together(const Error& common) {
  return failure(heartbeat_->fail({Fault::kAll, common.code(), common.what()}));
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

void Peers::find_place(const Processes::Timing& timing) {
  place_.emplace(named("start"));
  const auto told = rendezvous_.rank == 0 ? place_->own() : place_->ask(timing.join);
  if (!told) throw not_arrived(0, timing);
  prefix_ += "/" + *told;
}

void Peers::join(const Processes::Timing& timing) {
  using Clock = std::chrono::steady_clock;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(prefix_, store_);
  // Who comes when all are there already ends alone: the others train.
  if (store->check({kMet}))
    throw usage_error(
        "{} processes have met at {}:{} (MASTER_ADDR, MASTER_PORT) already and train: this one, with RANK {} "
        "and WORLD_SIZE {}, is one too many. They go on. Another run needs a port of its own.",
        store->get_to_str("world"), rendezvous_.address, rendezvous_.port, rendezvous_.rank,
        rendezvous_.world);
  // Before others see this one, which may be all that they wait for.
  const auto world = std::to_string(rendezvous_.world);
  const auto first = store->compareSet("world", {}, std::vector<uint8_t>(world.begin(), world.end()));
  if (const std::string other(first.begin(), first.end()); other != world)
    throw fail_to_join(*store,
                       usage_error("rank {} has WORLD_SIZE {}, another process has {}: all need the same.",
                                   rendezvous_.rank, world, other));
  if (Heartbeat::introduce(*store, rendezvous_.rank, host_name()) != 1)
    throw fail_to_join(*store, usage_error("two processes have RANK {}. Each needs its own, from 0 to {}.",
                                           rendezvous_.rank, rendezvous_.world - 1));
  const auto end = Clock::now() + timing.join;
  for (int rank = 0; rank < rendezvous_.world;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) throw fail_to_join(*store, not_arrived(rank, timing));
    const bool tells = place_ && rendezvous_.rank == 0;
    if (tells) place_->tell();
    if (Heartbeat::wait_for(*store, rank, std::min(tells ? kTellPlace : kPoll, left))) {
      ++rank;
    } else if (const auto fault = Heartbeat::decide(*store, {})) {
      throw fail_to_join(*store, fault->error());
    }
  }
  store->set(kMet, std::string("1"));
}

Error Peers::not_arrived(int rank, const Processes::Timing& timing) const {
  return {ExitCode::kFailure,
          fmt::format("rank {} of {} has not arrived at {}:{} within {} s. Check that all processes "
                      "were started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",
                      rank, rendezvous_.world, rendezvous_.address, rendezvous_.port,
                      std::chrono::duration_cast<std::chrono::seconds>(timing.join).count())};
}

Error Peers::fail_to_join(c10d::Store& store, const Error& own) const {
  const auto fault = Heartbeat::decide(store, Fault{Fault::kAll, own.code(), own.what()});
  if (serves()) std::this_thread::sleep_for(kReadFault);
  return fault ? fault->error() : own;
}

void Peers::look() {
  const auto fault = heartbeat_->fault();
  if (!fault) return;
  const auto now = std::chrono::steady_clock::now();
  if (!seen_) {
    seen_ = now;
    std::lock_guard lock(gpu_mutex_);
    if (gpu_) gpu_->abort();
  }
  if (failed_ || holds_ > 0 || !last_resort_ || now - *seen_ < kGrace) return;
  heartbeat_->wait_until_heard();
  last_resort_(fault->error());
}

Error Peers::failure(const Fault& fault) {
  failed_ = true;
  return fault.error();
}

}  // namespace tightloop
