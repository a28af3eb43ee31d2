#include "dist/process_group.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/error.h"
#include "dist/interfaces.h"
#include "dist/launcher.h"

namespace tightloop {

namespace {

using Gloo = c10d::ProcessGroupGloo;

MakeGpuGroup& gpu_maker() {
  static MakeGpuGroup maker = nullptr;
  return maker;
}

}  // namespace

ProcessGroup make_gloo_group(const Store& store, int rank, int world, const std::string& address,
                             std::chrono::milliseconds start) {
  auto options = Gloo::Options::create(start);
  if (const auto named = variable("GLOO_SOCKET_IFNAME"); !named.empty()) {
    for (auto& name : gloo_interfaces(named, interfaces()))
      options->devices.push_back(Gloo::createDeviceForInterface(name));
  } else {
    auto own = reachable_address(address);
    options->devices.push_back(own.empty() ? Gloo::createDefaultDevice()
                                           : Gloo::createDeviceForHostname(own));
  }
  auto group = c10::make_intrusive<Gloo>(store, rank, world, options);
  group->setTimeout(kPatience);
  return group;
}

void register_gpu_process_group(MakeGpuGroup make) { gpu_maker() = make; }

ProcessGroup make_gpu_group(const Store& store, int rank, int world) {
  if (!gpu_maker())
    throw device_error("processes cannot exchange GPU tensors: the CUDA plug-in is not there.");
  if (const auto named = variable("NCCL_SOCKET_IFNAME"); !named.empty())
    check_nccl_interfaces(named, interfaces());
  return gpu_maker()(store, rank, world);
}

}  // namespace tightloop
