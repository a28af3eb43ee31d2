#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tightloop {

/// Where this process stands among those that a launcher started.
struct Rendezvous {
  int rank = 0, world = 1;
  int local_rank = 0;  // among those of this machine: which GPU is ours
  std::string address;
  uint16_t port = 0;
  bool store_runs = false;  // the launcher itself serves the store; otherwise rank 0 does
  std::string run{};        // the launcher's: its store may be used by several
  /// For tests and measurements (TIGHTLOOP_GROUP_OF_ONE=1): one process too goes the way of several.
  bool group_of_one = false;
  std::string launcher{};  // for people: who started the processes
};

/// RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them; else what mpirun and
/// srun set (dist/launcher.h), where MASTER_ADDR, MASTER_PORT and LOCAL_RANK count more than what follows
/// from theirs. Nothing where nobody is said to be there; a usage error that names the variables where some
/// are missing, contradict each other or make no sense.
std::optional<Rendezvous> rendezvous_from_environment();

}  // namespace tightloop
