#include "dist/processes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/terminal/terminal.h"
#include "dist/interfaces.h"
#include "dist/launcher.h"
#include "dist/peers.h"

namespace tightloop {

namespace {

constexpr int64_t kBucketBytes = 25 << 20;
constexpr size_t kBucketsUnderWay = 2;

/// Tensors that travel as one.
struct Bucket {
  std::vector<at::Tensor> tensors;
  int64_t bytes = 0;
  at::Tensor flat{};
  Pending sum{};

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

void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.is_contiguous(), "a tensor for a collective is not dense");
}

void check_parts(const at::Tensor& part, const at::Tensor& parts, int64_t world) {
  check_dense(part), check_dense(parts);
  TORCH_CHECK(part.scalar_type() == parts.scalar_type() && part.device() == parts.device(),
              "a collective's tensors differ in dtype or device");
  TORCH_CHECK(parts.numel() == world * part.numel(), "a collective of ", world, " processes with ",
              part.numel(), " values each needs ", world * part.numel(), " values together, not ",
              parts.numel(), ": pad them");
}

/// As c10d's calls want it; autograd has no part in this.
at::Tensor flat_view(const at::Tensor& tensor) { return tensor.detach().view({-1}); }

/// `work` on `tensor`, and what is left to do on the host when it is there.
Pending pending(const std::shared_ptr<Peers>& peers, Work work, const at::Tensor& tensor,
                std::function<void()> then = {}) {
  return Pending([weak = std::weak_ptr(peers), work = std::move(work), tensor, then = std::move(then)] {
    const auto alive = weak.lock();
    TORCH_CHECK(alive, "a collective is waited for after its processes have parted");
    alive->wait(work, tensor);
    if (then) then();
  });
}

/// Of one process: what it gives is what it gets.
void copy_own(const at::Tensor& to, const at::Tensor& from) {
  if (to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
}

}  // namespace

Processes::Processes(const std::optional<Rendezvous>& rendezvous, const Timing& timing)
    : rendezvous_(rendezvous.value_or(Rendezvous{})) {
  if (rendezvous_.world == 1 && !rendezvous_.group_of_one) return;
  if (const auto named = variable("GLOO_SOCKET_IFNAME"); !named.empty())
    gloo_interfaces(named, interfaces());  // an error before anybody waits for us
  peers_ = std::make_shared<Peers>(rendezvous_, timing);
}
Processes::~Processes() = default;

void Processes::sum_(at::TensorList tensors) {
  if (!peers_) return;
  c10::NoGradGuard no_grad;
  std::deque<Bucket> under_way;
  const auto finish = [&] {
    auto& bucket = under_way.front();
    bucket.sum.wait();
    bucket.unpack();
    under_way.pop_front();
  };
  for (auto& bucket : buckets_of(tensors)) {
    if (under_way.size() == kBucketsUnderWay) finish();
    bucket.pack();
    bucket.sum = all_reduce(bucket.flat);
    under_way.push_back(std::move(bucket));
  }
  while (!under_way.empty()) finish();
}

Pending Processes::all_reduce(const at::Tensor& tensor) {
  check_dense(tensor);
  if (!peers_ || tensor.numel() == 0) return {};
  std::vector<at::Tensor> list{flat_view(tensor)};
  auto work = peers_->group_of(tensor).allreduce(list);
  return pending(peers_, std::move(work), list[0]);
}

Pending Processes::reduce_scatter(const at::Tensor& part, const at::Tensor& parts) {
  check_parts(part, parts, world());
  c10::NoGradGuard no_grad;
  at::Tensor to = flat_view(part), from = flat_view(parts);
  if (!peers_) copy_own(to, from);
  if (!peers_ || to.numel() == 0) return {};
  auto& group = peers_->group_of(from);
  if (!from.is_cpu()) return pending(peers_, group._reduce_scatter_base(to, from), to);
  // Gloo has none: c10d makes these same two steps for it, but as one that can only be waited for without a
  // limit, which a dead peer would keep waiting.
  std::vector<at::Tensor> sum{from.clone()};
  auto work = group.allreduce(sum);
  return pending(peers_, std::move(work), sum[0],
                 [to, own = sum[0].narrow(0, rank() * to.numel(), to.numel())] {
                   c10::NoGradGuard no_grad;
                   to.copy_(own);
                 });
}

Pending Processes::all_gather(const at::Tensor& parts, const at::Tensor& part) {
  check_parts(part, parts, world());
  c10::NoGradGuard no_grad;
  at::Tensor to = flat_view(parts), from = flat_view(part);
  if (!peers_) copy_own(to, from);
  if (!peers_ || to.numel() == 0) return {};
  return pending(peers_, peers_->group_of(from)._allgather_base(to, from), to);
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
  std::vector<at::Tensor> list{dense};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  pending(peers_, peers_->group_of(dense).broadcast(list, options), dense).wait();
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
