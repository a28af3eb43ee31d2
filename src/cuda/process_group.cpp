// NCCL, behind dist's process groups. Loading the library registers it.

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dist/process_group.h"

namespace tightloop {
// Programs that link libtightloop_ops and not libtightloop_train have none.
[[gnu::weak]] void register_gpu_process_group(MakeGpuGroup make);
}  // namespace tightloop

namespace tightloop::cuda {

namespace {

ProcessGroup make_nccl_group(const Store& store, int rank, int world) {
  // Its watchdog would end the process without a sentence; the Heartbeat notices a dead peer, and aborts.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = kPatience;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world, options);
}

[[maybe_unused]] const bool registered = [] {
  if (register_gpu_process_group) register_gpu_process_group(make_nccl_group);
  return true;
}();

}  // namespace

}  // namespace tightloop::cuda
