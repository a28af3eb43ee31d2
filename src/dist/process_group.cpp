#include "dist/process_group.h"

#include <cstdlib>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/error.h"

namespace tightloop {

namespace {

using Gloo = c10d::ProcessGroupGloo;

MakeGpuGroup& gpu_maker() {
  static MakeGpuGroup maker = nullptr;
  return maker;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace

ProcessGroup make_gloo_group(const Store& store, int rank, int world, const std::string& address,
                             std::chrono::milliseconds start) {
  auto options = Gloo::Options::create(start);
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    std::istringstream names(interfaces);
    for (std::string name; std::getline(names, name, ',');)
      options->devices.push_back(Gloo::createDeviceForInterface(name));
  } else {
    options->devices.push_back(is_loopback(address) ? Gloo::createDeviceForHostname("127.0.0.1")
                                                    : Gloo::createDefaultDevice());
  }
  auto group = c10::make_intrusive<Gloo>(store, rank, world, options);
  group->setTimeout(kPatience);
  return group;
}

void register_gpu_process_group(MakeGpuGroup make) { gpu_maker() = make; }

ProcessGroup make_gpu_group(const Store& store, int rank, int world) {
  if (!gpu_maker())
    throw device_error("processes cannot exchange GPU tensors: the CUDA plug-in is not there.");
  return gpu_maker()(store, rank, world);
}

}  // namespace tightloop
