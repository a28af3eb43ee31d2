#include "train/optim/state_slice.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr int64_t kChunk = int64_t{16} << 20;  // values that travel at once, of each process

int64_t count_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Where values of one process go.
struct Target {
  at::Tensor to;  // flat; undefined: nowhere
  int64_t size;
};

void put(const at::Tensor& values, std::vector<Target>& targets, size_t& target, int64_t& done) {
  int64_t at = 0;
  while (at < values.numel() && target < targets.size()) {
    Target& one = targets[target];
    const int64_t size = std::min(values.numel() - at, one.size - done);
    if (one.to.defined()) one.to.narrow(0, done, size).copy_(values.narrow(0, at, size));
    at += size, done += size;
    if (done == one.size) ++target, done = 0;
  }
}

}  // namespace

bool StateSlice::whole() const { return begin == 0 && values.numel() == count_of(sizes); }

StateSlice whole_slice(std::string name, const at::Tensor& values) {
  return {std::move(name), values.sizes().vec(), 0, values};
}

NamedTensors gather_whole(const std::vector<StateSlice>& slices, Processes& processes) {
  c10::NoGradGuard no_grad;
  // Each tells what it has that is not whole, and the main one where it belongs.
  nlohmann::json list = nlohmann::json::array();
  std::vector<at::Tensor> flat;
  NamedTensors named;
  for (const auto& slice : slices) {
    const at::Tensor values = slice.values.detach();
    if (slice.whole() && processes.main())
      named.emplace_back(slice.name,
                         values.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true).reshape(slice.sizes));
    if (slice.whole() && values.dim() == 0) continue;  // everybody has it
    if (slice.whole() && processes.main()) continue;
    TORCH_CHECK(values.scalar_type() == at::kFloat, "a slice of a training's state is not fp32");
    list.push_back({slice.name, slice.sizes, slice.begin, values.numel()});
    flat.push_back(values.reshape({-1}));
  }
  std::vector<nlohmann::json> lists;  // by rank
  for (const auto& text : processes.gather(list.dump())) lists.push_back(nlohmann::json::parse(text));
  std::map<std::string, at::Tensor> made;
  std::map<std::string, bool> known;
  for (const auto& [name, tensor] : named) known[name] = true;
  std::vector<std::vector<Target>> targets;
  int64_t most = 0;  // values that any process has to send
  for (const auto& one : lists) {
    int64_t size = 0;
    for (const auto& entry : one) size += entry[3].get<int64_t>();
    most = std::max(most, size);
    if (!processes.main()) continue;
    auto& own = targets.emplace_back();
    for (const auto& entry : one) {
      const auto name = entry[0].get<std::string>();
      const auto begin = entry[2].get<int64_t>(), count = entry[3].get<int64_t>();
      if (known.contains(name)) {
        own.push_back({{}, count});
        continue;
      }
      const auto [found, fresh] = made.try_emplace(name);
      if (fresh) {
        found->second = at::zeros(entry[1].get<std::vector<int64_t>>(), at::kFloat);
        named.emplace_back(name, found->second);
      }
      own.push_back({found->second.view({-1}).narrow(0, begin, count), count});
    }
  }
  // Equal chunks of what each has, end to end.
  std::vector<Target> sources;
  for (const auto& values : flat) sources.push_back({values, values.numel()});
  std::vector<size_t> target(lists.size());
  std::vector<int64_t> done(lists.size());
  size_t source = 0;
  int64_t read = 0;
  for (int64_t at = 0; at < most; at += kChunk) {
    const int64_t chunk = std::min(kChunk, most - at);
    at::Tensor part = at::zeros({chunk}, at::kFloat);
    for (int64_t filled = 0; filled < chunk && source < sources.size();) {
      const int64_t count = std::min(chunk - filled, sources[source].size - read);
      part.narrow(0, filled, count).copy_(sources[source].to.narrow(0, read, count));
      filled += count, read += count;
      if (read == sources[source].size) ++source, read = 0;
    }
    const at::Tensor parts = processes.gather(part);
    for (size_t rank = 0; parts.defined() && rank < lists.size(); ++rank)
      put(parts[static_cast<int64_t>(rank)], targets[rank], target[rank], done[rank]);
  }
  return named;
}

void load_slices(const std::vector<StateSlice>& slices, const Safetensors& whole, const std::string& file) {
  c10::NoGradGuard no_grad;
  if (whole.tensors.empty() && !slices.empty())
    throw checkpoint_error(
        "'{}' is empty: a checkpoint without the optimizer's state, as 'tightloop average' makes, is no "
        "place to go on "
        "from. A new run can start from its weights: --train.init_from.",
        file);
  for (const auto& slice : slices) {
    const auto found = whole.tensors.find(slice.name);
    if (found == whole.tensors.end()) throw checkpoint_error("'{}' has no tensor '{}'.", file, slice.name);
    const at::Tensor& from = found->second;
    if (from.sizes() != at::IntArrayRef(slice.sizes)) {
      throw checkpoint_error("'{}': tensor '{}' has shape [{}], the model needs [{}].", file, slice.name,
                             fmt::join(from.sizes(), ", "), fmt::join(slice.sizes, ", "));
    }
    const at::Tensor to = slice.values.detach();
    to.copy_(from.reshape({-1}).narrow(0, slice.begin, to.numel()).view(to.sizes()));
  }
}

}  // namespace tightloop
