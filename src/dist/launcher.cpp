#include "dist/launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "dist/hostlist.h"

namespace tightloop {

namespace {

constexpr int kMost = 1 << 20;  // processes
constexpr const char* kLoopback = "127.0.0.1";

bool is_set(const char* name) { return !variable(name).empty(); }

/// Below the ports that systems give to connections, above those of most services.
uint16_t port_of(const std::string& job) {
  constexpr uint64_t kFirst = 15000, kPorts = 17000;
  return static_cast<uint16_t>(kFirst + hash64(job) % kPorts);
}

/// Rank and size, which come together.
Launched ranked(std::string by, const char* rank, const char* size) {
  for (const char* name : {rank, size})
    if (!is_set(name))
      throw usage_error("the environment has {} but not {}, as {} would set both.",
                        name == rank ? size : rank, name, by);
  const int world = variable_number(size, 1, kMost);
  return {.by = std::move(by),
          .rank_in = rank,
          .size_in = size,
          .rank = variable_number(rank, 0, world - 1),
          .size = world};
}

/// Takes the loopback where all processes of mpirun are on this machine.
void meet_by_mpirun(Launched& launched, const char* local, const char* local_size, const char* set) {
  if (is_set(local)) launched.local_rank = variable_number(local, 0, launched.rank);
  if (is_set(local_size) && variable_number(local_size, 1, launched.size) == launched.size)
    launched.address = kLoopback;
  const auto give = [&](const char* name, const char* value) {
    return set[1] == 'x' ? fmt::format("-x {}={}", name, value) : fmt::format("-genv {} {}", name, value);
  };
  launched.advice = fmt::format(
      "mpirun {} {} -n {} tightloop train ..., where HOST is the machine of the first process, as the others "
      "reach it, and 29500 a free port there",
      give("MASTER_ADDR", "HOST"), give("MASTER_PORT", "29500"), launched.size);
}

Launched by_open_mpi() {
  auto launched = ranked("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  meet_by_mpirun(launched, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "-x");
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (launched.port == 0 && is_set(name)) launched.port = port_of(variable(name));
  return launched;
}

/// The process that started all those of a job of MPICH on this machine, which sets nothing that tells jobs
/// apart. 0 where it is not found.
int hydra_process() {
  int process = ::getppid();
  for (int depth = 0; process > 1 && depth < 64; ++depth) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    const std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t name = stat.find('('), end = stat.rfind(')');
    if (name == std::string::npos || end == std::string::npos || end + 4 > stat.size()) return 0;
    if (stat.compare(name + 1, 6, "hydra_") == 0) return process;
    process = std::atoi(stat.c_str() + end + 4);  // ") S PARENT"
  }
  return 0;
}

Launched by_mpich() {
  auto launched = ranked("mpirun (MPICH)", "PMI_RANK", "PMI_SIZE");
  meet_by_mpirun(launched, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "-genv");
  if (launched.address.empty()) return launched;
  if (const int process = hydra_process(); process > 0) launched.port = port_of(std::to_string(process));
  return launched;
}

std::string step_id() {
  return is_set("SLURM_STEP_ID") ? variable("SLURM_STEP_ID") : variable("SLURM_STEPID");
}

/// Whether srun started this process. Scripts of sbatch and shells of salloc have SLURM_PROCID and
/// SLURM_NTASKS too, and either no step or one whose number is reserved for them.
bool in_a_step() {
  constexpr uint64_t kReserved = 0xfffffff0;
  const std::string step = step_id();
  uint64_t number = 0;
  const auto read = std::from_chars(step.data(), step.data() + step.size(), number);
  return read.ec == std::errc{} && number < kReserved && is_set("SLURM_PROCID");
}

Launched by_slurm() {
  const std::string job = variable("SLURM_JOB_ID");
  const char* size = is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  auto launched =
      ranked(job.empty() ? "srun (Slurm)" : fmt::format("srun (Slurm job {})", job), "SLURM_PROCID", size);
  if (is_set("SLURM_LOCALID")) launched.local_rank = variable_number("SLURM_LOCALID", 0, launched.rank);
  if (launched.size == 1) return launched;
  const char* list = is_set("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (is_set(list) && !is_set("MASTER_ADDR")) {
    const auto hosts = hosts_of(variable(list));
    launched.address = hosts.size() == 1 ? kLoopback : hosts.front();
  }
  if (!job.empty()) launched.port = port_of(job + "." + step_id());
  launched.advice =
      "srun --export=ALL,MASTER_ADDR=HOST,MASTER_PORT=29500 ..., where HOST is the machine of the first "
      "process and 29500 a free port there. Slurm itself sets SLURM_STEP_NODELIST and SLURM_JOB_ID";
  return launched;
}

}  // namespace

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int variable_number(const char* name, int least, int most) {
  const std::string text = variable(name);
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{} || stopped != end || number < least || number > most)
    throw usage_error(
        "the environment variable {} is '{}', and a number from {} to {} is expected. Start several "
        "processes with torchrun, mpirun or srun, or unset it for one process.",
        name, text, least, most);
  return number;
}

std::optional<Launched> launched() {
  if (is_set("OMPI_COMM_WORLD_RANK") || is_set("OMPI_COMM_WORLD_SIZE")) return by_open_mpi();
  const bool slurm = in_a_step();
  if (is_set("PMI_RANK") || is_set("PMI_SIZE")) {
    // srun sets these for programs that use MPI; but a mpirun that srun started, one on each machine, has
    // numbers of its own.
    const bool by_srun = slurm && variable("PMI_RANK") == variable("SLURM_PROCID") &&
                         variable("PMI_SIZE") == variable("SLURM_STEP_NUM_TASKS");
    if (!by_srun) return by_mpich();
  }
  if (slurm) return by_slurm();
  return std::nullopt;
}

}  // namespace tightloop
