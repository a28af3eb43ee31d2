// Where metrics go besides metrics.jsonl, and that nothing there can harm a run.
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;
using testing::tiny;

/// Steps and losses of a run, as they are written.
std::string losses_in(const fs::path& file) {
  std::ifstream in(file);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_TRUE(json.contains("time")) << line;
    found +=
        json.at("global_step").dump() + " " + json.value("training/loss", nlohmann::json()).dump() + "\n";
  }
  return found;
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(MetricSinks, AreInTheRunsFolderAndTheRunStaysARun) {
  const TempFolder folder;
  const std::string train = "tightloop train " + tiny() + "--train.steps 20 --run.name a --log.csv true ";
  auto outcome = run(folder.path(), train);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto root = folder.path() / "runs/a";
  ASSERT_EQ(folder_entries(root / "tensorboard").size(), 1u);
  EXPECT_GT(file_bytes(folder_entries(root / "tensorboard").front()), 500u);
  EXPECT_TRUE(read_file(root / "metrics.csv").starts_with("global_step,time,"));
  EXPECT_FALSE(fs::exists(root / "wandb")) << "nobody asked for it";
  outcome = run(folder.path(), train + "--overwrite --log.tensorboard false --log.csv false");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_FALSE(fs::exists(root / "tensorboard"));
  EXPECT_FALSE(fs::exists(root / "metrics.csv"));
}

TEST(MetricSinks, WandbWithoutPythonOrPackageIsSaidOnceAndLossesStay) {
  const TempFolder folder;
  const std::string train = "tightloop train " + tiny() + "--train.steps 20 --run.name ";
  auto outcome = run(folder.path(), train + "plain");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto expected = losses_in(folder.path() / "runs/plain/metrics.jsonl");
  outcome = run(folder.path(), train + "none --wandb.mode online --wandb.python no-such-python");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times_in(outcome.output, "no-such-python"), 1u) << outcome.output;
  EXPECT_EQ(losses_in(folder.path() / "runs/none/metrics.jsonl"), expected);
  testing::write_file(folder.path() / "bare", "#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n");  // no packages
  fs::permissions(folder.path() / "bare", fs::perms::owner_all);
  fs::create_directory(folder.path() / "wandb");  // what wandb leaves behind is not the package
  outcome = run(folder.path(), train + "bare --wandb.mode offline --wandb.python ./bare");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times_in(outcome.output, "pip install wandb"), 1u) << outcome.output;
  EXPECT_EQ(losses_in(folder.path() / "runs/bare/metrics.jsonl"), expected);
}

}  // namespace
}  // namespace tightloop
