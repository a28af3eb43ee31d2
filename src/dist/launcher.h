#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tightloop {

/// A variable of the environment; empty where it is not set.
std::string variable(const char* name);
/// The number in one; a usage error that names it where there is none from `least` to `most`.
int variable_number(const char* name, int least, int most);

/// What mpirun or srun tells a process that it starts.
struct Launched {
  std::string by;                 // for people: "mpirun (Open MPI)"
  const char *rank_in, *size_in;  // the variables that say
  int rank = 0, size = 1;
  std::optional<int> local_rank{};
  std::string address{};  // where rank 0 is; empty where that does not follow
  uint16_t port = 0;      // the same in all processes of the job; 0 where nothing tells jobs apart
  std::string advice{};   // how to give address and port where they are missing
};

/// Open MPI's mpirun (OMPI_COMM_WORLD_*), that of MPICH or Intel (PMI_*, MPI_LOCAL*), or a step of srun
/// (SLURM_*). Nothing where none of them started this process: the shell of salloc and the script of sbatch
/// are one process each, whatever the job has asked for.
std::optional<Launched> launched();

}  // namespace tightloop
