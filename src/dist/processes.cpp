#include "dist/processes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <c10/util/Logging.h>

#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "dist/heartbeat.h"
#include "dist/process_group.h"

namespace tightloop {

namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

constexpr int64_t kBucketBytes = 25 << 20;
constexpr size_t kBucketsUnderWay = 2;
constexpr std::chrono::milliseconds kLook{500};  // how often a waiting call looks whether all are alive

/// Tensors that travel as one.
struct Bucket {
  std::vector<at::Tensor> tensors;
  int64_t bytes = 0;
  at::Tensor flat{};
  Work work{};

  /// A single dense tensor travels as it is.
  bool in_place() const { return tensors.size() == 1 && tensors[0].is_contiguous(); }
  void pack() {
    if (in_place()) {
      flat = tensors[0];
      return;
    }
    int64_t count = 0, at = 0;
    for (const auto& tensor : tensors) count += tensor.numel();
    flat = at::empty({count}, tensors[0].options());
    for (const auto& tensor : tensors) {
      flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
      at += tensor.numel();
    }
  }
  void unpack() {
    if (in_place()) return;
    int64_t at = 0;
    for (const auto& tensor : tensors) {
      tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  }
};

/// The same in every process, because it depends on shapes, dtypes and order alone.
std::vector<Bucket> buckets_of(at::TensorList tensors) {
  std::vector<Bucket> buckets;
  std::map<std::pair<at::ScalarType, at::DeviceType>, size_t> open;
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.defined(), "a tensor to be summed over processes is undefined");
    if (tensor.numel() == 0) continue;
    const auto key = std::pair{tensor.scalar_type(), tensor.device().type()};
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    const auto found = open.find(key);
    if (found == open.end() || buckets[found->second].bytes + bytes > kBucketBytes) {
      open[key] = buckets.size();
      buckets.emplace_back();
    }
    auto& bucket = buckets[open[key]];
    bucket.tensors.push_back(tensor.detach());
    bucket.bytes += bytes;
  }
  return buckets;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

class Processes::Peers {
 public:
  Peers(const Launch& launch, const Timing& timing)
      : launch_(launch), exceptions_(std::uncaught_exceptions()) {
    // c10d's own messages, with stack traces, would stand between ours.
    if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    const InterruptEndsProgram at_once;  // c10d does not stop waiting for peers
    try {
      store_ = connect(timing, /*serve=*/!launch.store_runs && launch.rank == 0);
      join(timing);
      gloo_ = make_gloo_group(named("gloo"), launch.rank, launch.world, launch.address, timing.join);
      const auto own = c10::make_intrusive<c10d::PrefixStore>(prefix_, connect(timing, /*serve=*/false));
      const std::string holder = launch.store_runs ? "the launcher, which serves the processes' store,"
                                                   : "rank 0, which serves the processes' store,";
      heartbeat_ = std::make_unique<Heartbeat>(own, launch.rank, launch.world,
                                               HeartbeatTiming{timing.beat, timing.missed}, holder,
                                               [this] { abort_gpu(); });
    } catch (const c10::Error& error) {
      throw Error(
          ExitCode::kFailure,
          fmt::format("rank {} of {} could not meet the others at {}:{} (MASTER_ADDR, MASTER_PORT): {}. "
                      "Check that the port is free there and that all processes were started.",
                      launch.rank, launch.world, launch.address, launch.port,
                      first_line(error.what_without_backtrace())));
    }
  }

  ~Peers() {
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

  void check() {
    const std::string loss = heartbeat_->loss();
    if (!loss.empty()) throw failure(loss);
  }

  Work sum(at::Tensor& tensor) {
    std::vector<at::Tensor> list{tensor};
    return group_of(tensor).allreduce(list);
  }
  Work broadcast(at::Tensor& tensor, int root) {
    std::vector<at::Tensor> list{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return group_of(tensor).broadcast(list, options);
  }

  /// On the CPU the host waits, on a GPU the current stream does.
  void wait(const Work& work, const at::Tensor& tensor) {
    if (!tensor.is_cpu()) {
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

 private:
  Store connect(const Timing& timing, bool serve) const {
    c10d::TCPStoreOptions options;
    options.port = launch_.port;
    options.isServer = serve;
    options.waitWorkers = false;
    options.timeout = timing.join;
    return c10::make_intrusive<c10d::TCPStore>(launch_.address, options);
  }
  Store named(const std::string& name) const {
    return c10::make_intrusive<c10d::PrefixStore>(prefix_ + "/" + name, store_);
  }

  void join(const Timing& timing) {
    const auto common = c10::make_intrusive<c10d::PrefixStore>(prefix_, store_);
    if (common->add(Heartbeat::key(launch_.rank), 1) != 1)
      throw usage_error("two processes have RANK {}. Each needs its own, from 0 to {}.", launch_.rank,
                        launch_.world - 1);
    for (int rank = 0; rank < launch_.world; ++rank) {
      try {
        common->wait({Heartbeat::key(rank)}, timing.join);
      } catch (const c10::Error&) {
        throw Error(
            ExitCode::kFailure,
            fmt::format("rank {} of {} has not arrived at {}:{} within {} s. Check that all processes "
                        "were started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE.",
                        rank, launch_.world, launch_.address, launch_.port,
                        std::chrono::duration_cast<std::chrono::seconds>(timing.join).count()));
      }
    }
  }

  c10d::Backend& group_of(const at::Tensor& tensor) {
    check();
    if (tensor.is_cpu()) return *gloo_;
    std::lock_guard lock(gpu_mutex_);
    if (!gpu_) gpu_ = make_gpu_group(named("gpu"), launch_.rank, launch_.world);
    return *gpu_;
  }

  /// Frees the host from GPU work that waits for a dead peer.
  void abort_gpu() {
    std::lock_guard lock(gpu_mutex_);
    if (gpu_) gpu_->abort();
  }

  Error failure(const std::string& loss) {
    failed_ = true;
    return {
        ExitCode::kFailure,
        fmt::format("{}. This process (rank {}) cannot go on without it. See what that one said last, then "
                    "start all of them again; --resume goes on from the last checkpoint.",
                    loss, launch_.rank)};
  }

  /// A launcher's store outlives us, and others may meet there after us: in this process, or when it is
  /// started again.
  static std::string next_prefix(const Launch& launch) {
    static int met = 0;
    return fmt::format("tightloop/{}/{}", launch.attempt, met++);
  }

  const Launch launch_;
  const std::string prefix_ = next_prefix(launch_);
  const int exceptions_;  // under way when this was made
  bool failed_ = false;
  Store store_;
  ProcessGroup gloo_;
  std::mutex gpu_mutex_;
  ProcessGroup gpu_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

Processes::Processes(const std::optional<Launch>& launch, const Timing& timing)
    : launch_(launch.value_or(Launch{})) {
  if (launch_.world > 1 || launch_.group_of_one) peers_ = std::make_unique<Peers>(launch_, timing);
}
Processes::~Processes() = default;

void Processes::sum_(at::TensorList tensors) {
  if (!peers_) return;
  c10::NoGradGuard no_grad;
  std::deque<Bucket> under_way;
  const auto finish = [&] {
    auto& bucket = under_way.front();
    peers_->wait(bucket.work, bucket.flat);
    bucket.unpack();
    under_way.pop_front();
  };
  for (auto& bucket : buckets_of(tensors)) {
    if (under_way.size() == kBucketsUnderWay) finish();
    bucket.pack();
    bucket.work = peers_->sum(bucket.flat);
    under_way.push_back(std::move(bucket));
  }
  while (!under_way.empty()) finish();
}

double Processes::sum(double value) {
  if (!peers_) return value;
  const auto tensor = at::full({1}, value, at::kDouble);
  sum_({tensor});
  return *tensor.const_data_ptr<double>();
}

int64_t Processes::sum(int64_t value) {
  if (!peers_) return value;
  const auto tensor = at::full({1}, value, at::kLong);
  sum_({tensor});
  return *tensor.const_data_ptr<int64_t>();
}

void Processes::broadcast(const at::Tensor& tensor, int root) {
  if (!peers_) return;
  c10::NoGradGuard no_grad;
  auto dense = tensor.detach().contiguous();
  peers_->wait(peers_->broadcast(dense, root), dense);
  if (!dense.is_same(tensor) && dense.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(dense);
}

double Processes::broadcast_value(double value, int root) {
  if (!peers_) return value;
  try {
    const auto tensor = at::full({1}, value, at::kDouble);
    broadcast(tensor, root);
    return *tensor.const_data_ptr<double>();
  } catch (const std::exception& error) {
    log::warn("A number could not be shared between the processes: {}", first_line(error.what()));
    return value;
  }
}

void Processes::barrier() { sum(int64_t{0}); }

void Processes::check() {
  if (peers_) peers_->check();
}

}  // namespace tightloop
