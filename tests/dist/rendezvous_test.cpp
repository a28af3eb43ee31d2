#include "dist/rendezvous.h"

#include <algorithm>

#include "dist/several.h"

namespace tightloop::testing {
namespace {

/// Sets variables for a scope; those of all launchers are unset before and after.
class Launch {
 public:
  explicit Launch(const Environment& environment) {
    clear();
    for (const auto& [name, value] : environment) {
      EXPECT_TRUE(std::ranges::count(kAll, name)) << name << " would stay set";
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Launch() { clear(); }

 private:
  static void clear() {
    for (const char* name : kAll) ::unsetenv(name);
  }
  static constexpr const char* kAll[] = {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_NAMESPACE",
                                         "OMPI_MCA_ess_base_jobid",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "MPI_LOCALRANKID",
                                         "MPI_LOCALNRANKS",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_ID",
                                         "SLURM_PROCID",
                                         "SLURM_LOCALID",
                                         "SLURM_NTASKS",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_JOB_NODELIST"};
};

/// A copy with some variables changed; an empty value removes one.
Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    environment[name] = value;
    if (value.empty()) environment.erase(name);
  }
  return environment;
}

std::optional<Rendezvous> meeting(const Environment& environment) {
  const Launch launch(environment);
  return rendezvous_from_environment();
}

std::string refusal(const Environment& environment) {
  const Launch launch(environment);
  return error_of(ExitCode::kUsage, [] { rendezvous_from_environment(); });
}

const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "1275133953"}};
const Environment kMpich{
    {"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kStep{{"SLURM_JOB_ID", "4711"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "5"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "6"},
                        {"SLURM_NTASKS", "6"},
                        {"SLURM_STEP_NODELIST", "gpu[01-03,7],login1"},
                        {"SLURM_JOB_NODELIST", "other[1-9]"}};

TEST(Launchers, OpenMpiOnOneMachineMeetsAtTheLoopback) {
  const auto found = meeting(kOpenMpi);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->world, 4);
  EXPECT_EQ(found->local_rank, 3);
  EXPECT_EQ(found->address, "127.0.0.1");
  EXPECT_CONTAINS(found->launcher, "Open MPI");
  // All processes of a job derive the same port, and another job another one.
  const auto other =
      meeting(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  EXPECT_EQ(other->port, found->port);
  EXPECT_GE(found->port, 1024);
  EXPECT_LT(found->port, 32768) << "where connections get their ports";
  EXPECT_NE(meeting(with(kOpenMpi, {{"PMIX_NAMESPACE", "1275133954"}}))->port, found->port);
  const auto by_id = with(kOpenMpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", "77"}});
  EXPECT_GE(meeting(by_id)->port, 1024);
}

TEST(Launchers, WhatIsSaidCountsMoreThanWhatFollows) {
  for (const auto& launcher : {kOpenMpi, kMpich, kStep}) {
    const auto found =
        meeting(with(launcher, {{"MASTER_ADDR", "here"}, {"MASTER_PORT", "999"}, {"LOCAL_RANK", "0"}}));
    EXPECT_EQ(found->address, "here");
    EXPECT_EQ(found->port, 999);
    EXPECT_EQ(found->local_rank, 0);
  }
  EXPECT_EQ(meeting(with(kOpenMpi, {{"MASTER_PORT", "999"}}))->address, "127.0.0.1");
}

TEST(Launchers, OnSeveralMachinesMpirunIsToldWhereToMeet) {
  const auto open_mpi =
      refusal(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}));
  EXPECT_CONTAINS(open_mpi, "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 -n 4 tightloop train");
  EXPECT_CONTAINS(refusal(kMpich),
                  "mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 -n 8 tightloop train");
  const auto found = meeting(with(kMpich, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->world, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_CONTAINS(refusal(with(kMpich, {{"MASTER_ADDR", "a"}})), "MASTER_PORT");
  EXPECT_CONTAINS(
      refusal(with(kMpich, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"MPI_LOCALRANKID", ""}})),
      "LOCAL_RANK");
}

TEST(Launchers, AStepOfSlurmMeetsAtItsFirstMachine) {
  const auto found = meeting(kStep);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->world, 6);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->address, "gpu01");
  EXPECT_CONTAINS(found->launcher, "4711");
  EXPECT_EQ(meeting(with(kStep, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}))->port, found->port);
  EXPECT_NE(meeting(with(kStep, {{"SLURM_JOB_ID", "4712"}}))->port, found->port);
  EXPECT_NE(meeting(with(kStep, {{"SLURM_STEP_ID", "1"}}))->port, found->port) << "steps run side by side";
  EXPECT_EQ(meeting(with(kStep, {{"SLURM_STEP_NODELIST", ""}}))->address, "other1");
  EXPECT_EQ(meeting(with(kStep, {{"SLURM_STEP_NODELIST", "gpu7"}}))->address, "127.0.0.1");
  EXPECT_EQ(meeting(with(kStep, {{"SLURM_STEP_NUM_TASKS", ""}}))->world, 6);
  const auto one =
      meeting(with(kStep, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}));
  EXPECT_EQ(one->world, 1) << "the step counts, not the job";
  EXPECT_CONTAINS(refusal(with(kStep, {{"SLURM_STEP_NODELIST", ""}, {"SLURM_JOB_NODELIST", ""}})),
                  "SLURM_STEP_NODELIST");
  EXPECT_CONTAINS(refusal(with(kStep, {{"SLURM_STEP_NODELIST", "gpu[01-"}})), "'gpu[01-'");
  // A list that cannot be read is no obstacle where it is not needed.
  EXPECT_EQ(meeting(with(kStep, {{"SLURM_STEP_NODELIST", "gpu[01-"}, {"MASTER_ADDR", "a"}}))->address, "a");
}

TEST(Launchers, AScriptOfSbatchAndAShellOfSallocAreOneProcess) {
  EXPECT_FALSE(meeting(with(kStep, {{"SLURM_STEP_ID", ""}, {"SLURM_PROCID", "0"}})));
  for (const char* reserved : {"4294967290", "4294967291", "4294967292"})
    EXPECT_FALSE(meeting(with(kStep, {{"SLURM_STEP_ID", reserved}, {"SLURM_PROCID", "0"}}))) << reserved;
  EXPECT_FALSE(meeting(with(kStep, {{"SLURM_PROCID", ""}})));
}

TEST(Launchers, MpirunInAJobOfSlurmIsMpirun) {
  Environment all = kOpenMpi;
  all.insert(kStep.begin(), kStep.end());
  EXPECT_EQ(meeting(all)->rank, 3);
  Environment hydra = with(kMpich, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  hydra.insert(kStep.begin(), kStep.end());
  EXPECT_EQ(meeting(hydra)->rank, 3);
  // srun itself sets PMI_* for programs that use MPI.
  Environment srun = kStep;
  srun["PMI_RANK"] = "5", srun["PMI_SIZE"] = "6";
  EXPECT_EQ(meeting(srun)->address, "gpu01");
}

const Environment kPlain{
    {"RANK", "5"}, {"WORLD_SIZE", "6"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};

TEST(Launchers, ContradictionsAreNamed) {
  const auto agreeing = with(kPlain, kStep);
  EXPECT_EQ(meeting(agreeing)->address, "a");
  for (const auto& [changes, own, theirs] : std::vector<std::tuple<Environment, std::string, std::string>>{
           {{{"RANK", "4"}}, "RANK is 4", "SLURM_PROCID"},
           {{{"WORLD_SIZE", "2"}, {"RANK", "1"}}, "WORLD_SIZE is 2", "SLURM_STEP_NUM_TASKS"},
           {{{"RANK", "4"}, {"MASTER_PORT", ""}}, "RANK is 4", "SLURM_PROCID"},
           {{{"WORLD_SIZE", "7"}, {"MASTER_ADDR", ""}}, "WORLD_SIZE is 7", "SLURM_STEP_NUM_TASKS"}}) {
    const auto message = refusal(with(agreeing, changes));
    EXPECT_CONTAINS(message, own);
    EXPECT_CONTAINS(message, theirs);
  }
  EXPECT_CONTAINS(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), "but not OMPI_COMM_WORLD_RANK");
  EXPECT_CONTAINS(refusal({{"PMI_RANK", "2"}}), "but not PMI_SIZE");
  EXPECT_CONTAINS(refusal(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}})), "OMPI_COMM_WORLD_RANK is '4'");
  EXPECT_CONTAINS(refusal(with(kStep, {{"SLURM_PROCID", "x"}})), "SLURM_PROCID is 'x'");
  EXPECT_CONTAINS(refusal(with(kPlain, {{"RANK", ""}})), "but not RANK");
  EXPECT_CONTAINS(refusal(with(kPlain, {{"LOCAL_RANK", ""}})),
                  "or set LOCAL_RANK (0 with one process a machine)");
}

// srun starts torchrun once on each machine, and that starts a process for each GPU.
TEST(Launchers, TorchrunUnderSrunIsTorchrun) {
  const auto found =
      meeting(with(with(kPlain, {{"TORCHELASTIC_RUN_ID", "x"}}), with(kStep, {{"SLURM_PROCID", "1"}})));
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->launcher, "torchrun");
  EXPECT_CONTAINS(meeting(kPlain)->launcher, "RANK and WORLD_SIZE");
  // As may others do that set the same variables.
  EXPECT_EQ(meeting(with(kPlain, with(kStep, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}})))->rank,
            5);
}

}  // namespace
}  // namespace tightloop::testing
