#include "dist/processes.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>
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

Pending pending(const std::shared_ptr<Peers>& peers, Work work, const at::Tensor& tensor) {
  return Pending([weak = std::weak_ptr(peers), work = std::move(work), tensor] {
    const auto alive = weak.lock();
    TORCH_CHECK(alive, "a collective is waited for after its processes have parted");
    alive->wait(work, tensor);
  });
}

/// Puts what arrived on the host where it belongs.
std::function<void()> copied(const at::Tensor& to, const at::Tensor& from) {
  return [to = flat_view(to), from] {
    c10::NoGradGuard no_grad;
    to.copy_(from);
  };
}

std::atomic<bool> met = false;

constexpr std::chrono::milliseconds kTell{
    8000};  // for others to arrive, where there is only an error to tell

std::optional<Error> wrong_interface() {
  const auto named = variable("GLOO_SOCKET_IFNAME");
  if (named.empty()) return {};
  try {
    gloo_interfaces(named, interfaces());
    return {};
  } catch (const Error& error) {
    return error;
  }
}

/// Of one process: what it gives is what it gets.
void copy_own(const at::Tensor& to, const at::Tensor& from) {
  if (to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
}

}  // namespace

Processes::Processes(const std::optional<Rendezvous>& rendezvous, const Timing& timing,
                     LastResort last_resort)
    : rendezvous_(rendezvous.value_or(Rendezvous{})) {
  met = true;
  if (rendezvous_.world == 1 && !rendezvous_.group_of_one) return;
  // Found before this process waits for the others, and told to those that wait for it: names of interfaces
  // differ from machine to machine.
  const auto wrong = wrong_interface();
  Timing limited = timing;
  if (wrong) limited.join = std::min(limited.join, kTell);
  try {
    peers_ = std::make_shared<Peers>(rendezvous_, limited, std::move(last_resort));
  } catch (const Error& error) {
    if (!wrong || error.code() == wrong->code()) throw;
    throw *wrong;  // nobody is there to hear of it
  }
}
Processes::~Processes() = default;
bool Processes::have_met() { return met; }

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

bool Processes::by_host(const at::Tensor& tensor) const {
  return peers_ && through_host_ && !tensor.is_cpu();
}

Pending Processes::all_reduce(const at::Tensor& tensor) {
  check_dense(tensor);
  if (!peers_ || tensor.numel() == 0) return {};
  if (by_host(tensor)) {
    const at::Tensor copy = flat_view(tensor).cpu();
    return all_reduce(copy).then(copied(tensor, copy));
  }
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
  if (by_host(from)) {
    const at::Tensor copies = from.cpu(), copy = at::empty({to.numel()}, copies.options());
    return reduce_scatter(copy, copies).then(copied(to, copy));
  }
  auto& group = peers_->group_of(from);
  if (!from.is_cpu()) return pending(peers_, group._reduce_scatter_base(to, from), to);
  // Gloo has none that can be waited for with a limit. Each process gets what is its own from all others, and
  // adds it up in the order of ranks: half the bytes of a sum that everybody has.
  at::Tensor received = at::empty_like(from);
  std::vector<int64_t> equal;
  return pending(peers_, group.alltoall_base(received, from, equal, equal), received)
      .then([to, received, parts = world()] {
        c10::NoGradGuard no_grad;
        at::Tensor sum = to;
        at::sum_out(sum, received.view({parts, -1}), {0}, /*keepdim=*/false, to.scalar_type());
      });
}

Pending Processes::all_gather(const at::Tensor& parts, const at::Tensor& part) {
  check_parts(part, parts, world());
  c10::NoGradGuard no_grad;
  at::Tensor to = flat_view(parts), from = flat_view(part);
  if (!peers_) copy_own(to, from);
  if (!peers_ || to.numel() == 0) return {};
  if (by_host(from)) {
    const at::Tensor copy = from.cpu(), copies = at::empty({to.numel()}, copy.options());
    return all_gather(copies, copy).then(copied(to, copies));
  }
  return pending(peers_, peers_->group_of(from)._allgather_base(to, from), to);
}

Pending Processes::reduce(const at::Tensor& tensor, int root) {
  check_dense(tensor);
  if (!peers_ || tensor.numel() == 0) return {};
  if (by_host(tensor)) {
    const at::Tensor copy = flat_view(tensor).cpu();
    return reduce(copy, root).then(copied(tensor, copy));
  }
  std::vector<at::Tensor> list{flat_view(tensor)};
  c10d::ReduceOptions options;
  options.rootRank = root;
  return pending(peers_, peers_->group_of(tensor).reduce(list, options), list[0]);
}

Pending Processes::start_broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor);
  if (!peers_ || tensor.numel() == 0) return {};
  if (by_host(tensor)) {
    const at::Tensor copy = flat_view(tensor).cpu();
    return start_broadcast(copy, root).then(copied(tensor, copy));
  }
  std::vector<at::Tensor> list{flat_view(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return pending(peers_, peers_->group_of(tensor).broadcast(list, options), list[0]);
}

at::Tensor Processes::gather(const at::Tensor& part) {
  check_dense(part);
  TORCH_CHECK(part.is_cpu(), "tensors are gathered on the host");
  const at::Tensor from = flat_view(part);
  if (!peers_) return from.unsqueeze(0);
  at::Tensor parts;
  std::vector<std::vector<at::Tensor>> outputs;
  if (main()) {
    parts = at::empty({world(), from.numel()}, from.options());
    outputs.push_back(parts.unbind(0));
  }
  if (from.numel() == 0) return parts;
  std::vector<at::Tensor> inputs{from};
  pending(peers_, peers_->group_of(from).gather(outputs, inputs), from).wait();
  return parts;
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
  start_broadcast(dense, root).wait();
  if (!dense.is_same(tensor) && dense.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(dense);
}

std::string Processes::broadcast_text(const std::string& text, int root) {
  if (!peers_) return text;
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  start_broadcast(size, root).wait();
  const at::Tensor bytes = at::zeros({*size.const_data_ptr<int64_t>()}, at::kByte);
  auto* data = reinterpret_cast<char*>(bytes.mutable_data_ptr<uint8_t>());
  if (rank() == root) std::ranges::copy(text, data);
  start_broadcast(bytes, root).wait();
  return {data, static_cast<size_t>(bytes.numel())};
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

void Processes::post(const std::string& name, const std::string& text) {
  if (peers_) peers_->board().post(name, text);
}

void Processes::remove_post(const std::string& name) {
  if (peers_) peers_->board().remove(name);
}

std::string Processes::posted(const std::string& name) {
  constexpr std::chrono::milliseconds kLook{10};
  TORCH_CHECK(peers_, "nobody posts anything to a process that is alone");
  for (;; std::this_thread::sleep_for(kLook)) {
    if (auto text = peers_->board().find(name)) return *text;
    peers_->check_aside();
  }
}

void Processes::barrier() { sum(int64_t{0}); }

void Processes::check() {
  if (peers_) peers_->check();
}

Error Processes::fail(const std::exception& error) {
  const Error own = last_words(error);
  if (dynamic_cast<const SharedError*>(&error)) return fail_together(own);
  return peers_ ? peers_->fail(own) : own;
}

Error Processes::fail_together(const Error& error) { return peers_ ? peers_->fail_together(error) : error; }

std::string Processes::name(int rank) const {
  return peers_ ? peers_->name(rank) : fmt::format("rank {} of {}", rank, world());
}

Processes::Unhurried::Unhurried(Processes& processes) : peers_(processes.peers_) {
  if (peers_) peers_->hold_last_resort(1);
}
Processes::Unhurried::~Unhurried() {
  if (peers_) peers_->hold_last_resort(-1);
}

std::vector<std::string> Processes::gather(const std::string& text) {
  if (!peers_) return {text};
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong),
                   sizes = at::zeros({world()}, at::kLong);
  all_gather(sizes, size).wait();
  const auto* count = sizes.const_data_ptr<int64_t>();
  const int64_t most = *std::max_element(count, count + world());
  const at::Tensor own = at::zeros({most}, at::kByte), all = at::zeros({world() * most}, at::kByte);
  std::ranges::copy(text, reinterpret_cast<char*>(own.mutable_data_ptr<uint8_t>()));
  all_gather(all, own).wait();
  std::vector<std::string> texts;
  const auto* bytes = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (int rank = 0; rank < world(); ++rank)
    texts.emplace_back(bytes + rank * most, static_cast<size_t>(count[rank]));
  return texts;
}

void Processes::tell_pace(double seconds) {
  if (peers_) peers_->heartbeat().tell_pace(seconds);
}

std::vector<double> Processes::paces() {
  return peers_ ? peers_->heartbeat().paces() : std::vector<double>(1);
}

}  // namespace tightloop
