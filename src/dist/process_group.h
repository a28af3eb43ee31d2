#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tightloop {

using Store = c10::intrusive_ptr<c10d::Store>;
using ProcessGroup = c10::intrusive_ptr<c10d::Backend>;

/// How long a call may wait for peers that are alive: as long as their evaluations and saves take. Peers that
/// are not are the Heartbeat's business.
constexpr std::chrono::hours kPatience{24};

/// Tensors in main memory. Connects to all peers, within `start`. $GLOO_SOCKET_IFNAME names the network
/// interfaces to use; without it, the one that leads to `address` (dist/interfaces.h).
ProcessGroup make_gloo_group(const Store& store, int rank, int world, const std::string& address,
                             std::chrono::milliseconds start);

/// Tensors on GPUs: brought by the CUDA plug-in when it is loaded.
using MakeGpuGroup = ProcessGroup (*)(const Store& store, int rank, int world);
void register_gpu_process_group(MakeGpuGroup make);
ProcessGroup make_gpu_group(const Store& store, int rank, int world);

}  // namespace tightloop
