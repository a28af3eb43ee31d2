#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"
#include "dist/heartbeat.h"
#include "dist/process_group.h"
#include "dist/processes.h"
#include "dist/rendezvous.h"

namespace tightloop {

using Work = c10::intrusive_ptr<c10d::Work>;

/// The other processes, as they can be reached: c10d's groups, and the heartbeat that says who is gone.
class Peers {
 public:
  Peers(const Rendezvous& rendezvous, const Processes::Timing& timing);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Throws where one is gone.
  void check();
  /// Who carries such a tensor: Gloo, or the CUDA plug-in's NCCL.
  c10d::Backend& group_of(const at::Tensor& tensor);
  /// On the CPU the host waits, on a GPU the current stream does.
  void wait(const Work& work, const at::Tensor& tensor);

 private:
  Store connect(const Processes::Timing& timing, bool serve) const;
  Store named(const std::string& name) const;
  void join(const Processes::Timing& timing);
  /// Frees the host from GPU work that waits for a dead peer.
  void abort_gpu();
  Error failure(const std::string& loss);

  const Rendezvous rendezvous_;
  const std::string prefix_;
  const int exceptions_;  // under way when this was made
  bool failed_ = false;
  Store store_;
  ProcessGroup gloo_;
  std::mutex gpu_mutex_;
  ProcessGroup gpu_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace tightloop
