// Several processes, as launchers start them. Those that are not installed here are skipped.
#include <sys/stat.h>

#include <algorithm>

#include "program.h"

namespace tightloop::testing {
namespace {

const std::string kProgram = TIGHTLOOP_BINARY_DIR "/tightloop";

/// Rows and accumulation such that two processes make the steps of one.
std::string of_two(const std::string& name, int steps = 12) {
  return tiny() +
         "--train.micro_batch 4 --train.save_steps 4 --train.keep_checkpoints 0 --train.eval_steps 0 " +
         "--train.loss_extract_interval 1 --train.steps " + std::to_string(steps) + " --run.name " + name +
         " ";
}

/// Both of two processes, started by hand; `first` and `second` are commands without the program's name.
std::string by_hand(const std::string& first, const std::string& second) {
  const std::string env = "env WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(some_port());
  return "( " + second + " " + env + " RANK=1 LOCAL_RANK=1 $TL ) & other=$!; ( " + first + " " + env +
         " RANK=0 LOCAL_RANK=0 $TL ); code=$?; wait $other || code=$?; exit $code";
}

std::string last_weights(const fs::path& run, int step = 12) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08d", step);
  return read_file(run / "checkpoints" / name / "model.safetensors");
}

/// The weights of a run of one process with the same batches.
std::string undisturbed(const fs::path& folder, const std::string& launch) {
  const auto outcome = run(folder, launch + " '" + kProgram + "' train " + of_two("undisturbed"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return last_weights(folder / "runs/undisturbed");
}

bool has(const std::string& command) {
  return std::system(("command -v " + command + " > /dev/null 2>&1").c_str()) == 0;
}

const std::string kAsRoot = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ";
fs::path torchrun() { return source_folder() / ".deps/peers/bin/torchrun"; }

TEST(Launch, OpenMpiStartsTwo) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI's mpirun is not installed (openmpi-bin)";
  const TempFolder folder;
  const auto outcome = run(folder.path(), kAsRoot + "mpirun.openmpi --oversubscribe --bind-to none -n 2 '" +
                                              kProgram + "' train " + of_two("a"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(
      contains(outcome.output, "2 processes on 1 machine, started by mpirun (Open MPI), meet at 127.0.0.1:"))
      << outcome.output;
  EXPECT_TRUE(contains(read_file(folder / "runs/a/log.txt"), "started by mpirun (Open MPI)"));
  EXPECT_TRUE(contains(outcome.output, "x 1 accumulated x 2 processes")) << outcome.output;
}

TEST(Launch, MpichStartsTwo) {
  if (!has("mpirun.mpich")) GTEST_SKIP() << "MPICH's mpirun is not installed (mpich)";
  const TempFolder folder;
  // In a shell each, so that their parents differ.
  const auto outcome = run(folder.path(), "mpirun.mpich -n 2 sh -c '\"$0\" \"$@\"; exit $?' '" + kProgram +
                                              "' train " + of_two("a"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "2 processes on 1 machine, started by mpirun (MPICH)"))
      << outcome.output;
}

TEST(Launch, AStepOfSlurmByItsVariables) {
  const TempFolder folder;
  const std::string job = "env SLURM_JOB_ID=" + std::to_string(::getpid()) +
                          " SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_STEP_NODELIST=gpu7 ";
  const std::string train = " '" + kProgram + "' train " + of_two("a");
  const auto outcome = run(folder.path(), job + "SLURM_PROCID=1 SLURM_LOCALID=1" + train + " & " + job +
                                              "SLURM_PROCID=0 SLURM_LOCALID=0" + train + " && wait $!");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "2 processes on 1 machine, started by srun (Slurm job "))
      << outcome.output;
  // A script of sbatch is one process, though the job has two tasks.
  const auto script = run(folder.path(),
                          "unset SLURM_STEP_ID; SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2 "
                          "SLURM_JOB_NODELIST='gpu[1-2]' '" +
                              kProgram + "' train " + of_two("b"));
  EXPECT_EQ(script.exit_code, 0) << script.output;
  EXPECT_TRUE(contains(script.output, "x 1 process ")) << script.output;
}

TEST(Launch, ContradictoryVariablesAreAUsageError) {
  const TempFolder folder;
  const auto outcome = run(folder.path(),
                           "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=1 "
                           "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 tightloop train " +
                               of_two("a"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "RANK is 0, but OMPI_COMM_WORLD_RANK")) << outcome.output;
}

// A signal to one of the processes is a wish of all: one checkpoint, at a step that they agree on.
TEST(Launch, Usr1ToOneProcessHasAllOfThemSave) {
  const TempFolder folder;
  const std::string env = "env WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(some_port());
  const std::string train = " '" + kProgram + "' train " + tiny() +
                            "--train.micro_batch 4 --train.save_steps 0 --train.save_minutes 0 "
                            "--train.eval_steps 0 --train.steps 1000000 --run.name a";
  const auto outcome =
      run(folder.path(), env + " RANK=1 LOCAL_RANK=1" + train + " & one=$!; " + env + " RANK=0 LOCAL_RANK=0" +
                             train +
                             " & zero=$!; until grep -q global_step runs/a/metrics.jsonl; do "
                             "sleep 0.05; done 2>/dev/null; kill -USR1 $one; until grep -q "
                             "'\"event\":\"saved\"' runs/a/events.jsonl; do kill -0 $zero || "
                             "break; sleep 0.05; done; sleep 0.3; kill -TERM $one; wait $zero");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "SIGUSR1: step ")) << outcome.output;
  const auto steps = run(folder.path(), "ls runs/a/checkpoints");
  EXPECT_EQ(std::ranges::count(steps.output, '\n'), 2) << "the one asked for, and the last\n" << steps.output;
}

// Rank 1 is killed twice in mid-run; torchrun starts both again.
TEST(Launch, TorchrunRestartsCompleteTheRun) {
  if (!fs::exists(torchrun())) GTEST_SKIP() << "there is no torchrun here (tools/setup --peers)";
  const TempFolder folder;
  write_file(folder / "worker.sh", R"(
if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" -lt 2 ]; then
  "$@" & child=$!
  until ls -d runs/a/checkpoints/step-*[0-9] 2>/dev/null | grep -q "step-0*$((4 + 4 * TORCHELASTIC_RESTART_COUNT))$"; do
    kill -0 $child || exit 9; sleep 0.01
  done
  kill -KILL $child; wait $child; echo killed in attempt $TORCHELASTIC_RESTART_COUNT; exit 137
fi
exec "$@"
)");
  const std::string launch = "'" + torchrun().string() + "' --no-python --nproc-per-node 2 --master-port " +
                             std::to_string(some_port()) + " --max-restarts 2 ";
  const std::string recipe = of_two("a", 400);
  const auto outcome =
      run(folder.path(), launch + "bash worker.sh '" + kProgram + "' train " + recipe + "--resume auto");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* said : {"killed in attempt 0", "killed in attempt 1", "started by torchrun",
                           "exists and goes on, with its own settings"})
    EXPECT_TRUE(contains(outcome.output, said)) << said << "\n" << outcome.output;
  const auto events = read_file(folder / "runs/a/events.jsonl");
  EXPECT_TRUE(contains(events, "resumed after step")) << events;
  const auto whole = run(folder.path(), launch + "'" + kProgram + "' train " + of_two("b", 400));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_TRUE(last_weights(folder / "runs/a", 400) == last_weights(folder / "runs/b", 400))
      << run(folder.path(), "tightloop checkpoint diff runs/a@400 runs/b@400").output;
}

TEST(Launch, ResumeAutoBeginsGoesOnAndEnds) {
  const TempFolder folder;
  const std::string train = "tightloop train " + of_two("a") + "--resume auto ";
  const auto first = run(folder.path(), train + "--train.stop_at 8");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_FALSE(contains(first.output, "exists and goes on")) << first.output;
  const auto second = run(folder.path(), train + "--train.stop_at 0");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_TRUE(contains(second.output, "Resuming after step 8.")) << second.output;
  EXPECT_TRUE(contains(second.output, "is not read again")) << second.output;
  EXPECT_EQ(last_weights(folder / "runs/a"), undisturbed(folder.path(), ""));
  const auto third = run(folder.path(), train);
  EXPECT_EQ(third.exit_code, 0) << third.output;
  EXPECT_TRUE(contains(third.output, "there is nothing to do")) << third.output;
  // What may not change is refused, as with any --resume.
  EXPECT_EQ(run(folder.path(), train + "--model.width 64").exit_code, 2);
  EXPECT_EQ(run(folder.path(), train + "--overwrite").exit_code, 2);
}

TEST(Launch, WhatCannotBeMeantIsRefused) {
  const TempFolder folder;
  const std::string env =
      "env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 TIGHTLOOP_GROUP_OF_ONE=1 MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT=" +
      std::to_string(some_port()) + " ";
  for (const auto& [command, said] : std::vector<std::pair<std::string, std::string>>{
           {"train --resume auto", "stands behind a recipe"},
           {"train " + tiny() + "--train.device cpu --dist.backend nccl",
            "dist.backend nccl carries tensors of GPUs"}}) {
    const auto outcome = run(folder.path(), env + "'" + kProgram + "' " + command);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, said)) << outcome.output;
  }
}

// Killed before its first checkpoint, it has metrics and nothing to go on from.
TEST(Launch, ResumeAutoBeginsAgainWithoutACheckpoint) {
  const TempFolder folder;
  const std::string recipe = tiny() + "--train.save_steps 0 --train.eval_steps 0 --run.name a ";
  const auto killed = run(folder.path(), signalled("train " + recipe + "--train.steps 100000",
                                                   "grep -q global_step runs/a/metrics.jsonl", "KILL"));
  ASSERT_EQ(killed.exit_code, 137) << killed.output;
  EXPECT_EQ(run(folder.path(), "tightloop train " + recipe + "--train.steps 5").exit_code, 2);
  const auto again = run(folder.path(), "tightloop train " + recipe + "--train.steps 5 --resume auto");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_TRUE(fs::exists(folder / "runs/a/checkpoints/step-00000005"));
  // Somebody's own folder is never taken for a run.
  fs::create_directories(folder / "runs/own");
  write_file(folder / "runs/own/notes.txt", "mine");
  EXPECT_EQ(run(folder.path(), "tightloop train " + tiny() + "--run.name own --resume auto").exit_code, 2);
  EXPECT_EQ(read_file(folder / "runs/own/notes.txt"), "mine");
}

/// Both processes in folders of their own, of which only the first has the run.
class WithoutSharedDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"one", "two", "tmp", "same"}) fs::create_directories(folder / name);
  }
  Outcome apart(const std::string& train) {
    return run(folder.path(),
               "TL=\"" + kProgram + " train " + train + "\"; " +
                   by_hand("cd one;", "cd two; export TMPDIR='" + (folder / "tmp").string() + "';"));
  }
  Outcome together(const std::string& train) {
    return run(folder.path(), "cd same; TL=\"" + kProgram + " train " + train + "\"; " + by_hand("", ""));
  }
  void expect_nothing_left() {
    EXPECT_FALSE(fs::exists(folder / "two/runs"));
    EXPECT_TRUE(fs::is_empty(folder / "tmp"));
  }
  TempFolder folder;
};

TEST_F(WithoutSharedDisk, ANewRunAndAResumeGiveTheSame) {
  // The program's words are split by the shell, so that quotes of paths go.
  std::string recipe = of_two("a");
  std::erase(recipe, '\'');
  const auto started = apart(recipe + "--train.stop_at 8");
  ASSERT_EQ(started.exit_code, 0) << started.output;
  EXPECT_TRUE(contains(started.output, "Not all processes see 'runs/a'")) << started.output;
  expect_nothing_left();
  const auto resumed = apart("--resume runs/a --train.stop_at 0");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(contains(resumed.output, "Resuming after step 8.")) << resumed.output;
  expect_nothing_left();
  const auto whole = together(recipe);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_FALSE(contains(whole.output, "Not all processes see")) << whole.output;
  EXPECT_TRUE(last_weights(folder / "one/runs/a") == last_weights(folder / "same/runs/a"));
}

TEST_F(WithoutSharedDisk, TheTokenizerAndTheIndexAreSent) {
  write_text(folder / "one/text.txt", 200'000);
  for (const char* other : {"two", "same"}) {
    fs::copy(folder / "one/text.txt", folder / other / "text.txt");
    fs::last_write_time(folder / other / "text.txt", fs::last_write_time(folder / "one/text.txt"));
  }
  const std::string recipe = TIGHTLOOP_SOURCE_DIR
      "/configs/text.yaml --data.train text.txt --data.tokenize live --tokenizer.vocab_size 300 "
      "--data.seq_len 32 "
      "--train.device cpu --train.precision fp32 --model.layers 1 --model.width 32 --model.heads 2 "
      "--train.micro_batch 4 --train.steps 12 --train.eval_steps 0 --train.loss_extract_interval 1 "
      "--run.name a ";
  const auto started = apart(recipe + "--train.stop_at 8");
  ASSERT_EQ(started.exit_code, 0) << started.output;
  expect_nothing_left();
  const auto resumed = apart(recipe + "--train.stop_at 0 --resume auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  expect_nothing_left();
  const auto whole = together(recipe);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_TRUE(last_weights(folder / "one/runs/a") == last_weights(folder / "same/runs/a"));
}

/// A program of this name in the folder `bin`.
void fake(const fs::path& bin, const std::string& name, const std::string& script) {
  fs::create_directories(bin);
  write_file(bin / name, "#!/bin/bash\n" + script);
  ::chmod((bin / name).c_str(), 0755);
}

/// examples/slurm/train.sbatch with commands that stand for Slurm's: srun starts two processes and hands
/// signals on, scontrol ends the job.
TEST(Slurm, TheScriptSavesRequeuesAndGoesOn) {
  const TempFolder folder;
  fake(folder / "bin", "srun", R"(
[ "$1" = --kill-on-bad-exit=1 ] && [ "$2" = --cpus-per-task=3 ] || exit 64
shift 2
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_STEP_NODELIST=here
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & one=$!
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & zero=$!
echo $one $zero > processes
trap 'kill -USR1 $one $zero' USR1
until wait $zero; code=$?; ! kill -0 $zero 2>/dev/null; do :; done
wait $one
exit $code
)");
  fake(folder / "bin", "scontrol", "echo \"$@\" > requeued; kill -TERM $(cat processes)\n");
  const std::string job = "export PATH='" + (folder / "bin").string() +
                          "':\"$PATH\" SLURM_CPUS_PER_TASK=3 SLURM_JOB_ID=" + std::to_string(::getpid()) +
                          " TIGHTLOOP='" + kProgram + "'; ";
  const std::string script = "bash '" TIGHTLOOP_SOURCE_DIR "/examples/slurm/train.sbatch' ";
  std::string recipe =
      tiny() +
      "--train.micro_batch 4 --train.save_steps 0 --train.save_minutes 0 --train.eval_steps 0 "
      "--train.loss_extract_interval 1 --run.dir elsewhere ";
  recipe.insert(recipe.find(".yaml'") + 6, " a");
  const auto began = std::chrono::steady_clock::now();
  const auto first =
      run(folder.path(),
          job + script + recipe +
              "--train.steps 1000000 & script=$!; until grep -q global_step "
              "elsewhere/a/metrics.jsonl; do sleep 0.05; done 2>/dev/null; kill -USR1 $script; wait $script");
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(first.exit_code, 130) << first.output;
  EXPECT_TRUE(contains(first.output, "the job goes back into the queue")) << first.output;
  EXPECT_TRUE(contains(first.output, "is saved, training goes on.")) << first.output;
  EXPECT_LT(took, std::chrono::seconds(60)) << "the save was seen";
  EXPECT_EQ(read_file(folder / "requeued"), "requeue " + std::to_string(::getpid()) + "\n");
  const auto events = read_file(folder / "elsewhere/a/events.jsonl");
  EXPECT_TRUE(contains(events, "\"event\":\"saved\"")) << events;
  // As Slurm starts it again.
  const auto second = run(folder.path(), job + script + recipe + "--train.steps 1000000 --train.stop_at 1");
  EXPECT_EQ(second.exit_code, 0) << second.output;
  EXPECT_TRUE(contains(second.output, "there is nothing to do")) << second.output;
}

TEST(Slurm, TheScriptPassesShellcheck) {
  if (!has("shellcheck")) GTEST_SKIP() << "shellcheck is not installed";
  const auto outcome = run(source_folder(), "shellcheck examples/slurm/train.sbatch");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace tightloop::testing
