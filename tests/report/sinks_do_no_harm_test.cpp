// Whatever becomes of a sink, the run is the same to the bit.
#include <sys/resource.h>

#include <signal.h>

#include "report/watch.h"
#include "train/report/csv_sink.h"
#include "train/report/sinks.h"
#include "train/report/tensorboard_sink.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

Recipe watched_recipe() {
  auto recipe = small_recipe();
  recipe.train.steps = 24, recipe.train.logging_steps = 1, recipe.train.eval_steps = 8;
  recipe.train.save_steps = 8, recipe.log.flush_steps = 1;
  recipe.log.tensorboard = false;
  return recipe;
}

/// The losses of a run in whose evaluations, at steps 8, 16 and 24, `meanwhile` happens.
std::vector<double> losses_with(
    const Recipe& recipe, const RunFolder& run, const std::function<void()>& meanwhile = [] {}) {
  Trainer trainer(recipe, run);
  trainer.also_evaluate([&]() -> Task::Evaluation {
    meanwhile();
    return {};
  });
  const auto result = trainer.run();
  EXPECT_EQ(result.step, 24);
  EXPECT_EQ(json_lines(run.metrics()).size(), 24u + 3u) << "metrics.jsonl has everything";
  return result.losses;
}

class SinksDoNoHarm : public ::testing::Test {
 protected:
  RunFolder make() { return RunFolder::create(folder_ / ("run" + std::to_string(++runs_)), false); }
  const std::vector<double>& plain() {
    if (plain_.empty()) plain_ = losses_with(watched_recipe(), make());
    return plain_;
  }
  TempFolder folder_;
  int runs_ = 0;
  std::vector<double> plain_;
};

TEST_F(SinksDoNoHarm, AllOfThemOn) {
  auto recipe = watched_recipe();
  recipe.log.tensorboard = recipe.log.csv = true;
  if (fs::exists(watch_python())) {
    recipe.wandb.mode = WandbMode::kOffline;
    recipe.wandb.python = watch_python();
  }
  const auto run = make();
  EXPECT_EQ(losses_with(recipe, run), plain());
  const auto csv = read_file(run.csv());
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 24 + 3);
  EXPECT_EQ(folder_entries(run.tensorboard()).size(), 1u);
}

TEST_F(SinksDoNoHarm, FilesAndFoldersThatAreRemoved) {
  auto recipe = watched_recipe();
  recipe.log.tensorboard = recipe.log.csv = true;
  const auto run = make();
  EXPECT_EQ(losses_with(recipe, run,
                        [&] {
                          fs::remove_all(run.tensorboard());
                          fs::remove(run.csv());
                        }),
            plain());
  EXPECT_FALSE(fs::exists(run.csv()));
}

TEST_F(SinksDoNoHarm, FoldersThatCannotBeMade) {
  auto recipe = watched_recipe();
  recipe.log.tensorboard = recipe.log.csv = true;
  recipe.wandb.mode = WandbMode::kOffline;
  const auto run = make();
  for (const auto& path : {run.tensorboard(), run.wandb()}) write_file(path, "a file");
  fs::create_directory(run.csv());
  write_file(run.csv() / "full", "");
  EXPECT_EQ(losses_with(recipe, run), plain());
}

TEST_F(SinksDoNoHarm, AHelperThatDiesOrIsNotThere) {
  auto recipe = watched_recipe();
  recipe.wandb.mode = WandbMode::kOnline;
  for (const char* script :
       {"kill -9 $$", "read line; read line; kill -9 $$", "exit 0", "echo '{\"error\": 5'; cat"}) {
    const auto python = folder_ / "python";
    write_file(python, std::string("#!/bin/sh\n") + script + "\n");
    fs::permissions(python, fs::perms::owner_all);
    recipe.wandb.python = python;
    EXPECT_EQ(losses_with(recipe, make()), plain()) << script;
  }
  recipe.wandb.python = folder_ / "none";
  EXPECT_EQ(losses_with(recipe, make()), plain());
  recipe.log.asynchronous = false;
  EXPECT_EQ(losses_with(recipe, make()), plain());
}

/// No file of this process gets longer than this, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST(Sinks, AFullDiskDoesNotEndARunThatGoesBack) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  std::string lines;
  for (int step = 1; step <= 1000; ++step) lines += "{\"global_step\":" + std::to_string(step) + "}\n";
  for (const auto& file : {run.metrics(), run.samples()}) write_file(file, lines);
  auto recipe = watched_recipe();
  recipe.log.tensorboard = recipe.log.csv = true, recipe.log.asynchronous = false;
  Metrics metrics(recipe.log, sinks_of(run, recipe, 0));
  SampleLog samples(run.samples(), 0);
  metrics.line({{"global_step", 1001}, {"eval/loss", 1.0}});
  metrics.flush();
  {
    const FullDisk full(4096);
    metrics.rewind(900);
    samples.rewind(900);
    metrics.line({{"global_step", 901}, {"eval/loss", 1.0}});
    metrics.finish();
  }
  EXPECT_GE(json_lines(run.metrics()).size(), 1000u) << "what cannot be written anew stays";
  EXPECT_EQ(json_lines(run.samples()).size(), 1000u);
}

TEST(Sinks, GoBackWithTheRun) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  const auto python = folder / "python";
  write_file(python, "#!/bin/sh\necho started >> '" + (folder / "starts").string() + "'\ncat > /dev/null\n");
  fs::permissions(python, fs::perms::owner_all);
  auto recipe = watched_recipe();
  recipe.log.tensorboard = recipe.log.csv = true;
  recipe.wandb.mode = WandbMode::kOnline, recipe.wandb.python = python;
  Metrics metrics(recipe.log, sinks_of(run, recipe, 0));
  for (int step = 1; step <= 30; ++step) metrics.line({{"global_step", step}, {"eval/loss", 1.0 * step}});
  const auto start = std::chrono::steady_clock::now();
  metrics.rewind(20);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << "it does not wait for W&B";
  metrics.line({{"global_step", 21}, {"eval/loss", 0.5}});
  metrics.finish();
  const auto lines = json_lines(run.metrics());
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_EQ(lines.back().at("eval/loss"), 0.5);
  EXPECT_EQ(std::ranges::count(read_file(run.csv()), '\n'), 1 + 21);
  EXPECT_EQ(folder_entries(run.tensorboard()).size(), 2u) << "the second says what is no longer true";
  EXPECT_EQ(read_file(folder / "starts"), "started\n") << "one writer";
}

TEST(Sinks, AFullDiskIsASentenceAndNoFileIsLost) {
  const TempFolder folder;
  const auto fill = [](Sink& sink) {
    return error_of(ExitCode::kCheckpoint, [&] {
      for (int64_t step = 1; step < 1000; ++step) {
        sink.write(
            {{{"global_step", step}, {"time", 1.0}, {"training/loss", 1.0 / static_cast<double>(step)}}});
        sink.flush();
      }
    });
  };
  TensorboardSink events(folder / "tensorboard", 0);
  CsvSink csv(folder / "metrics.csv", {"training/loss"}, 0);
  events.flush();
  const FullDisk full(4096);
  EXPECT_NE(fill(events).find("disk full"), std::string::npos);
  EXPECT_NE(fill(csv).find("disk full"), std::string::npos);
  EXPECT_EQ(file_bytes(folder / "metrics.csv"), 4096u);
}

}  // namespace
}  // namespace tightloop::testing
