#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstdlib>

#include "dist/several.h"
#include "ops/compare.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

/// How a training is divided.
struct Division {
  int world = 2;
  int64_t accumulate = 1;
  Sharding shard = Sharding::kNone;
  OptimizerKind optimizer = OptimizerKind::kAdamw;
  bool overlap = true;
  Precision precision = Precision::kFp32;
  ReduceDtype reduce = ReduceDtype::kFp32;
};

Recipe recipe_for(const Division& division, int64_t steps) {
  auto recipe = small_recipe();
  auto& train = recipe.train;
  recipe.model.layers = 3, recipe.model.width = 32;
  train.steps = steps, train.logging_steps = 1, train.loss_extract_interval = 5, train.clip = 0.5;
  train.micro_batch = 24 / division.world / division.accumulate, train.accumulate = division.accumulate;
  train.eps = 1e-5;  // at 1e-8 the sign of gradients that are zero in theory decides (docs/numerics.md)
  train.lr_scale = 0.05, train.optimizer = division.optimizer, train.precision = division.precision;
  recipe.dist = {
      .shard = division.shard, .reduce = division.reduce, .overlap = division.overlap, .bucket_mb = 0.01};
  return recipe;
}

struct Trained {
  std::vector<double> losses;
  Checkpoint checkpoint;
};

Trained trained_by(const Recipe& recipe, const fs::path& folder, Processes* processes) {
  const bool main = !processes || processes->main();
  const auto run = main ? RunFolder::create(folder, false) : RunFolder(folder);
  Trained outcome{Trainer(recipe, run, {.processes = processes}).run().losses, {}};
  if (main) outcome.checkpoint = load_checkpoint(run.checkpoints());
  return outcome;
}

double worst_error(const Safetensors& got, const Safetensors& wanted) {
  double error = 0;
  EXPECT_EQ(got.tensors.size(), wanted.tensors.size());
  for (const auto& [name, tensor] : wanted.tensors) {
    EXPECT_TRUE(got.tensors.contains(name)) << name << " is missing";
    if (got.tensors.contains(name)) error = std::max(error, relative_error(got.tensors.at(name), tensor));
  }
  return error;
}

/// What is saved, as bytes: checkpoints do not depend on who trained.
std::string saved_weights(const fs::path& run) {
  const RunFolder folder(run);
  const int64_t step = checkpoint_steps(folder.checkpoints()).back();
  return read_file(checkpoint_folder(folder.checkpoints(), step) / "model.safetensors");
}

/// One process on all rows, and several as the test's children, come to the same.
void expect_as_of_one(const Division& division, int64_t steps, double losses, double weights) {
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  const Recipe recipe = recipe_for(division, steps);
  Trained several;
  bool main = false;
  {
    Processes processes;
    main = processes.main();
    several = trained_by(recipe, folder / "several", &processes);
  }
  if (!main) return;
  Division alone = division;
  alone.world = 1, alone.accumulate = 1;
  const Trained one = trained_by(recipe_for(alone, steps), folder / "one", nullptr);
  ASSERT_EQ(several.losses.size(), one.losses.size());
  double loss_error = 0;
  for (size_t i = 0; i < one.losses.size(); ++i)
    loss_error = std::max(loss_error, std::abs(several.losses[i] - one.losses[i]) / one.losses[i]);
  const double weight_error = worst_error(several.checkpoint.weights, one.checkpoint.weights);
  EXPECT_LT(loss_error, losses);
  EXPECT_LT(weight_error, weights);
  EXPECT_LT(worst_error(several.checkpoint.optimizer, one.checkpoint.optimizer), 100 * weights);
  if (const char* to = std::getenv("TIGHTLOOP_SHARDING"))
    write_file_whole(fs::path(to) / ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                     fmt::format("{:.1e} {:.1e}\n", loss_error, weight_error));
}

#define SHARDING_TEST(name, ...)                                                         \
  TEST(Sharding, name) {                                                                 \
    const Division division{__VA_ARGS__};                                                \
    if (!in_child()) return expect_success(division.world);                              \
    /* TIGHTLOOP_SHARDING=FOLDER: 50 steps, and the errors into FOLDER. */               \
    expect_as_of_one(division, std::getenv("TIGHTLOOP_SHARDING") ? 50 : 20, 1e-5, 1e-3); \
  }

SHARDING_TEST(NothingTwo, .world = 2)
SHARDING_TEST(NothingApart, .world = 2, .overlap = false)
SHARDING_TEST(NothingAccumulated, .world = 2, .accumulate = 3)
SHARDING_TEST(OptimizerTwo, .world = 2, .shard = Sharding::kOptimizer)
SHARDING_TEST(OptimizerThree, .world = 3, .shard = Sharding::kOptimizer)
SHARDING_TEST(OptimizerApart, .world = 2, .shard = Sharding::kOptimizer, .overlap = false)
SHARDING_TEST(OptimizerAccumulated, .world = 4, .accumulate = 3, .shard = Sharding::kOptimizer)
SHARDING_TEST(GradientsTwo, .world = 2, .shard = Sharding::kGradients)
SHARDING_TEST(GradientsAccumulated, .world = 3, .accumulate = 4, .shard = Sharding::kGradients)
SHARDING_TEST(GradientsApart, .world = 2, .accumulate = 2, .shard = Sharding::kGradients, .overlap = false)
SHARDING_TEST(MuonNothing, .world = 2, .optimizer = OptimizerKind::kMuon)
SHARDING_TEST(MuonOptimizer, .world = 3, .shard = Sharding::kOptimizer, .optimizer = OptimizerKind::kMuon)
SHARDING_TEST(MuonGradients, .world = 2, .accumulate = 2, .shard = Sharding::kGradients,
              .optimizer = OptimizerKind::kMuon)

TEST(Sharding, OverlapChangesNoBit) {
  if (!in_child()) return expect_success(3);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  Processes processes;
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients}) {
    const auto run = [&](bool overlap) { return folder / fmt::format("{}-{}", name_of(shard), overlap); };
    for (const bool overlap : {true, false})
      trained_by(recipe_for({.world = 3, .accumulate = 2, .shard = shard, .overlap = overlap}, 6),
                 run(overlap), &processes);
    EXPECT_TRUE(!processes.main() || saved_weights(run(true)) == saved_weights(run(false))) << name_of(shard);
  }
}

/// Both files of the newest checkpoint.
std::string saved_bytes(const fs::path& run) {
  const RunFolder folder(run);
  const fs::path checkpoint =
      checkpoint_folder(folder.checkpoints(), checkpoint_steps(folder.checkpoints()).back());
  return read_file(checkpoint / kWeightsFile) + read_file(checkpoint / kOptimizerFile);
}

// Every collective is called, and gives what it gets.
TEST(Sharding, AGroupOfOneWritesTheFilesOfARunWithoutProcesses) {
  if (!in_child()) return expect_success(1, {{"TIGHTLOOP_GROUP_OF_ONE", "1"}});
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  Processes processes;
  ASSERT_TRUE(processes.several());
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon})
    for (const auto precision : {Precision::kFp32, Precision::kBf16})
      for (const int64_t accumulate : {1, 2}) {
        const auto recipe = [&](Sharding shard) {
          return recipe_for({.world = 1,
                             .accumulate = accumulate,
                             .shard = shard,
                             .optimizer = optimizer,
                             .precision = precision,
                             .reduce = ReduceDtype::kCompute},
                            20);
        };
        const auto name = fmt::format("{}-{}-{}", name_of(optimizer), name_of(precision), accumulate);
        trained_by(recipe(Sharding::kNone), folder / name, nullptr);
        const auto wanted = saved_bytes(folder / name);
        for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients}) {
          const fs::path run = folder / fmt::format("{}-{}", name, name_of(shard));
          trained_by(recipe(shard), run, &processes);
          EXPECT_TRUE(saved_bytes(run) == wanted) << name << " " << name_of(shard);
        }
      }
}

TEST(Sharding, GoesOnWithAnotherNumberOfProcessesAndAnotherShard) {
  if (!in_child()) return expect_success(3);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = recipe_for({.world = 3, .shard = Sharding::kOptimizer}, 12);
  recipe.train.stop_at = 5;
  bool main = false;
  {
    Processes processes;
    main = processes.main();
    trained_by(recipe, folder / "several", &processes);
  }
  if (!main) return;
  recipe = recipe_for({.world = 1}, 12);
  const RunFolder run(folder / "several");
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  const Trained one = trained_by(recipe, folder / "one", nullptr);
  EXPECT_LT(worst_error(load_checkpoint(run.checkpoints()).weights, one.checkpoint.weights), 1e-3);
}

TEST(Sharding, AllProcessesWriteOneFile) {
  if (!in_child()) return expect_success(3);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = recipe_for({.world = 3, .shard = Sharding::kOptimizer}, 6);
  recipe.train.save_steps = 2;
  Processes processes;
  trained_by(recipe, folder / "run", &processes);
  if (!processes.main()) return;
  const fs::path checkpoints = RunFolder(folder / "run").checkpoints();
  for (const int64_t step : {2, 4, 6}) {
    const auto files = read_checkpoint_state(checkpoints, step).files;
    for (const char* name : {kWeightsFile, kOptimizerFile}) {
      EXPECT_GT(files.at(name).at("pieces").size(), 3U) << name;
      EXPECT_EQ(file_bytes(checkpoint_folder(checkpoints, step) / name), files.at(name).at("bytes"));
    }
    load_checkpoint(checkpoints, step);
  }
  // One byte that another process wrote is damaged.
  const auto path = checkpoint_folder(checkpoints, 6) / kOptimizerFile;
  auto bytes = read_file(path);
  bytes[bytes.size() - 5] ^= 1;
  write_file_whole(path, bytes);
  EXPECT_CONTAINS(error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(checkpoints, 6); }), "checksum");
  EXPECT_EQ(load_checkpoint(checkpoints).step, 4) << "the newest that is whole";
}

/// Steps of the checkpoints, and how many saves events.jsonl says have failed.
std::pair<std::vector<int64_t>, size_t> saved_and_failed(const RunFolder& run) {
  const auto events = read_file(run.events());
  size_t failed = 0;
  for (size_t at = events.find("save_failed"); at != events.npos; at = events.find("save_failed", at + 1))
    ++failed;
  return {checkpoint_steps(run.checkpoints()), failed};
}

// A disk that one process cannot write to costs a save, and not every second one.
TEST(Sharding, AfterAFailedSaveTogetherTheMainProcessCollects) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = recipe_for({.world = 2, .shard = Sharding::kOptimizer}, 10);
  recipe.train.save_steps = 2, recipe.train.keep_checkpoints = 0;
  Processes processes;
  if (!processes.main()) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit few{1000, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
  }
  trained_by(recipe, folder / "run", &processes);
  if (!processes.main()) {
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &all);
    return;
  }
  const auto [saved, failed] = saved_and_failed(RunFolder(folder / "run"));
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 6, 8, 10}));
  EXPECT_EQ(failed, 1u);
}

// What bf16 costs where gradients are added up in it, as a figure: fp32 must be the nearer one.
TEST(Sharding, SumsInFp32AreNearerThanInBf16) {
  if (!in_child()) return expect_success(4);
  Processes processes;
  const at::Tensor own = random_tensor({100'000}, at::kBFloat16, static_cast<uint64_t>(processes.rank()));
  at::Tensor exact = own.to(at::kDouble), wide = own.to(at::kFloat), narrow = own.clone();
  for (const at::Tensor& tensor : {exact, wide, narrow}) processes.all_reduce(tensor).wait();
  const double wide_error = relative_error(wide.to(at::kDouble), exact),
               narrow_error = relative_error(narrow.to(at::kDouble), exact);
  EXPECT_LT(wide_error, 1e-6);
  EXPECT_GT(narrow_error, 1e-3);
  if (processes.main()) std::printf("fp32 %.1e, bf16 %.1e\n", wide_error, narrow_error);
}

}  // namespace
}  // namespace tightloop::testing
