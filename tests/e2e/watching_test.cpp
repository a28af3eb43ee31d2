// What people see of runs: the block on a terminal, `top` and `runs`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "e2e/pty.h"

namespace tightloop::testing {
namespace {

/// Runs for as long as it is let: evaluates and saves every 10 steps.
std::string endless(const std::string& name) {
  return "train " + tiny() + "--train.steps 1000000 --train.eval_steps 10 --train.save_steps 10 --run.name " +
         name;
}

size_t count_of(const Pty& pty, const std::string& part) {
  const auto lines = pty.screen().lines();
  return static_cast<size_t>(
      std::ranges::count_if(lines, [&](const std::string& line) { return contains(line, part); }));
}

nlohmann::json listed(const fs::path& folder, const std::string& name) {
  const auto outcome = run(folder, "tightloop runs --json");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const auto& one : nlohmann::json::parse(outcome.output))
    if (one.at("name") == name) return one;
  ADD_FAILURE() << name << " is not in the list\n" << outcome.output;
  return {};
}

TEST(LiveTraining, ABlockOfLinesIsRedrawnInPlace) {
  const TempFolder folder;
  Pty pty(folder.path(), "exec tightloop " + endless("a"));
  ASSERT_TRUE(pty.until("best ")) << pty.text();
  ASSERT_TRUE(pty.until("step 40: held-out loss")) << pty.text();
  ASSERT_TRUE(pty.until("  data wait ")) << pty.text();
  EXPECT_EQ(count_of(pty, "checkpoint "), 1u) << pty.text();
  EXPECT_EQ(count_of(pty, "tok/s"), 1u) << pty.text();
  EXPECT_EQ(count_of(pty, "/1000000"), 1u) << pty.text();
  EXPECT_GT(count_of(pty, ": held-out loss"), 2u) << "lines above it stay\n" << pty.text();

  pty.resize(40, 24);
  ASSERT_TRUE(pty.until([&] {
    const auto lines = pty.screen().lines();
    return std::ranges::count_if(lines,
                                 [](const auto& line) {
                                   return contains(line, "held-out 0") || contains(line, "held-out 1") ||
                                          contains(line, "held-out 2");
                                 }) == 1 &&
           count_of(pty, "tok/s") == 1 && count_of(pty, "/1000000") == 1 && count_of(pty, "checkpoint ") == 1;
  })) << pty.text();

  pty.send("\003");
  EXPECT_EQ(pty.wait(), 130) << pty.text();
  EXPECT_EQ(count_of(pty, "tok/s"), 0u) << "the block is gone\n" << pty.text();
  EXPECT_TRUE(contains(pty.text(), "Stopped after step ")) << pty.text();
  EXPECT_EQ(listed(folder.path(), "a").at("state"), "stopped");

  Pty resumed(folder.path(), "tightloop train --resume runs/a");
  ASSERT_TRUE(resumed.until("best ")) << "evaluations of before count\n" << resumed.text();
  EXPECT_EQ(count_of(resumed, "tok/s"), 1u) << resumed.text();
}

TEST(LiveTraining, WarningsGoAboveTheBlockAndAreCounted) {
  const TempFolder folder;
  Pty pty(folder.path(), "exec tightloop " + endless("a"));
  ASSERT_TRUE(pty.until("tok/s")) << pty.text();
  EXPECT_FALSE(contains(pty.text(), "warning")) << pty.text();
  fs::remove(folder.path() / "runs/a/metrics.jsonl");
  ASSERT_TRUE(pty.until("1 warning")) << pty.text();
  EXPECT_TRUE(contains(pty.text(), "warning: metrics.jsonl gets no more metrics")) << pty.text();
  ASSERT_TRUE(pty.until([&] { return count_of(pty, "tok/s") == 1 && count_of(pty, "/1000000") == 1; }))
      << pty.text();
}

TEST(LiveTraining, WithoutATerminalLinesArePlain) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop train " + tiny() + "--train.steps 20 --run.name a");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "\033")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "step 20/20  loss ")) << outcome.output;
}

TEST(LiveTraining, SeveralProcessesWritePlainLines) {
  const TempFolder folder;
  const std::string train =
      "tightloop train " + tiny() + "--train.micro_batch 4 --train.steps 10 --run.name a";
  Pty pty(folder.path(),
          "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(some_port()) +
              "; RANK=1 LOCAL_RANK=1 " + train + " & RANK=0 LOCAL_RANK=0 " + train + "; wait");
  ASSERT_TRUE(pty.until("step 10/10  loss ")) << pty.text();
  EXPECT_FALSE(contains(pty.text(), "░")) << "a block would be drawn over what the other process says\n"
                                          << pty.text();
  EXPECT_EQ(pty.wait(), 0) << pty.text();
}

TEST(LiveTraining, AnotherLocaleGetsAscii) {
  const TempFolder folder;
  Pty pty(folder.path(), "LC_ALL=C exec tightloop " + endless("a") + " --eval.samples 0");
  ASSERT_TRUE(pty.until("tok/s")) << pty.text();
  ASSERT_TRUE(pty.until("--")) << "the bar\n" << pty.text();
  EXPECT_TRUE(std::ranges::all_of(pty.text(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
      << pty.text();
}

TEST(Top, FollowsTheRunThatIsTrained) {
  const TempFolder folder;
  Pty training(folder.path(), "exec tightloop " + endless("mine") + " >log 2>&1");
  ASSERT_TRUE(training.until(
      [&] { return contains(testing::run(folder.path(), "cat runs/mine/events.jsonl").output, "saved"); }));
  Pty top(folder.path(), "stty -a >before; tightloop top; code=$?; stty -a >after; exit $code");
  ASSERT_TRUE(top.until("tok/s")) << top.text();
  ASSERT_TRUE(top.until("q leaves")) << top.text();
  EXPECT_EQ(top.screen().lines().front().substr(0, 6), "mine  ") << top.text();
  const std::string first = top.screen().lines().front();
  ASSERT_TRUE(top.until([&] { return top.screen().lines().front() != first; })) << top.text();
  EXPECT_EQ(count_of(top, "/1000000"), 1u) << top.text();
  top.send("q");
  EXPECT_EQ(top.wait(), 0) << top.text();
  EXPECT_EQ(run(folder.path(), "cmp before after").exit_code, 0) << "the terminal is as it was";
  EXPECT_FALSE(contains(top.text(), "q leaves")) << top.text();

  Pty interrupted(folder.path(), "exec tightloop top runs/mine");
  ASSERT_TRUE(interrupted.until("q leaves")) << interrupted.text();
  interrupted.send("\003");
  EXPECT_EQ(interrupted.wait(), 0) << interrupted.text();

  const auto once = run(folder.path(), "tightloop top mine --once --json");
  EXPECT_EQ(nlohmann::json::parse(once.output).at("state"), "running");
  EXPECT_EQ(std::ranges::count(once.output, '\n'), 1) << once.output;
  EXPECT_EQ(listed(folder.path(), "mine").at("state"), "running");

  Pty last(folder.path(), "tightloop top mine");
  ASSERT_TRUE(last.until("q leaves")) << last.text();
  training.send("\003");
  EXPECT_EQ(last.wait(), 0) << last.text();
  EXPECT_TRUE(contains(last.text(), "mine: stopped after step ")) << last.text();
  EXPECT_EQ(training.wait(), 130) << "nobody disturbed it";
}

TEST(Top, SaysHowARunEnded) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 20 --run.name a").exit_code, 0);
  const auto text = run(folder.path(), "tightloop top");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "a  finished  100 %")) << text.output;
  EXPECT_TRUE(contains(text.output, "a: finished after step 20")) << text.output;
  EXPECT_FALSE(contains(text.output, "\033")) << text.output;
  const auto json = run(folder.path(), "tightloop top a --json");
  EXPECT_EQ(nlohmann::json::parse(json.output).at("state"), "finished") << json.output;

  const auto killed =
      run(folder.path(), signalled(endless("b") + " >log 2>&1", "grep -q saved runs/b/events.jsonl", "KILL"));
  EXPECT_EQ(killed.exit_code, 137) << killed.output;
  const auto crashed = run(folder.path(), "tightloop top b");
  EXPECT_EQ(crashed.exit_code, 0) << crashed.output;
  EXPECT_TRUE(contains(crashed.output, "b has crashed: no last word: killed or out of memory"))
      << crashed.output;
  EXPECT_FALSE(contains(crashed.output, "tok/s")) << crashed.output;
  const auto table = run(folder.path(), "tightloop runs");
  EXPECT_TRUE(contains(table.output, "\n  no last word: killed or out of memory\n")) << table.output;
  EXPECT_TRUE(contains(crashed.output, "tightloop train --resume runs/b")) << crashed.output;
  EXPECT_EQ(listed(folder.path(), "b").at("state"), "crashed");
}

TEST(Top, AnErrorIsToldThoughASaveCameAfterItAndCannotDriveTheTerminal) {
  const TempFolder folder;
  fs::create_directories(folder / "runs/a/checkpoints");
  write_file(folder / "runs/a/config.yaml", "train:\n  steps: 100\n");
  write_file(folder / "runs/a/events.jsonl",
             R"({"global_step": 5, "event": "failed", "text": "no memory for \u001b[31mred"})"
             "\n"
             R"({"global_step": 4, "event": "saved", "text": "step 4"})"
             "\n");
  const auto outcome = run(folder.path(), "tightloop top a");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "a has crashed: no memory for \\x1b[31mred")) << outcome.output;
}

TEST(Runs, ListsAndCompares) {
  const TempFolder folder;
  const auto in = [&](const std::string& command) { return run(folder.path(), "tightloop " + command); };
  const auto none = in("runs");
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_TRUE(contains(none.output, "There is no run in 'runs' yet")) << none.output;
  EXPECT_EQ(in("runs --json").output, "[]\n");
  const std::string long_name = "a_run_whose_name_is_longer_than_its_column_is_wide";
  ASSERT_EQ(in("train " + tiny() + "--train.steps 20 --run.name " + long_name).exit_code, 0);
  ASSERT_EQ(in("train " + tiny() + "--train.steps 30 --train.lr 0.002 --run.name two").exit_code, 0);

  const auto table = in("runs");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_FALSE(contains(table.output, "\033")) << table.output;
  EXPECT_TRUE(contains(table.output, "\n" + long_name + "\n")) << table.output;
  EXPECT_TRUE(contains(table.output, "finished  20/20")) << table.output;
  EXPECT_LT(table.output.find("two"), table.output.find(long_name)) << "changed last\n" << table.output;
  std::istringstream lines(table.output);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_width(line), 80) << line;
  Pty coloured(folder.path(), "tightloop runs");
  EXPECT_EQ(coloured.wait(), 0);
  EXPECT_TRUE(contains(coloured.text(), "finished  20/20")) << coloured.text();

  const auto compared = in("runs --compare two " + long_name);
  EXPECT_EQ(compared.exit_code, 0) << compared.output;
  EXPECT_TRUE(contains(compared.output, "\ntrain.lr ")) << compared.output;
  EXPECT_TRUE(contains(compared.output, "\nheld-out loss ")) << compared.output;
  EXPECT_FALSE(contains(compared.output, "model.layers")) << compared.output;
  std::istringstream rows(compared.output);
  for (std::string line; std::getline(rows, line);) EXPECT_LE(text_width(line), 80) << line;
  const auto json = nlohmann::json::parse(in("runs --json --compare two " + long_name).output);
  EXPECT_EQ(json.at("settings").at("train.steps"), (nlohmann::json{30, 20})) << "numbers";
  EXPECT_EQ(json.at("runs").at(0).at("global_step"), 30);
  EXPECT_TRUE(contains(in("runs --compare two two").output, "The settings are the same.")) << "of one run";

  // A run of an older version, one that cannot be read, and what is no run.
  fs::copy(folder.path() / "runs/two", folder.path() / "runs/old", fs::copy_options::recursive);
  fs::remove(folder.path() / "runs/old/events.jsonl");
  fs::create_directories(folder.path() / "runs/broken/checkpoints");
  fs::create_symlink("config.yaml", folder.path() / "runs/broken/config.yaml");
  fs::create_symlink("loop", folder.path() / "runs/loop");
  const auto with_broken = in("runs");
  EXPECT_EQ(with_broken.exit_code, 0) << with_broken.output;
  EXPECT_TRUE(contains(with_broken.output, "broken  cannot be read: ")) << with_broken.output;
  EXPECT_EQ(listed(folder.path(), "old").at("state"), "finished");

  for (int i = 0; i < 25; ++i) {
    const auto root = folder.path() / ("runs/more" + std::to_string(i));
    fs::create_directories(root / "checkpoints");
  }
  EXPECT_TRUE(contains(in("runs").output, "and 9 older runs (--all shows them)")) << in("runs").output;
  EXPECT_TRUE(contains(in("runs --all").output, "more24")) << "all of them";
}

TEST(Runs, WrongNamesAreSentences) {
  const TempFolder folder;
  const auto expect = [&](const std::string& command, const std::string& part) {
    const auto outcome = run(folder.path(), "tightloop " + command);
    EXPECT_EQ(outcome.exit_code, 2) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, part)) << command << "\n" << outcome.output;
  };
  fs::create_directories(folder.path() / "empty");
  expect("runs nowhere", "there is no folder 'nowhere' with a run");
  expect("runs --compare one", "--compare");
  expect("runs --compare one two", "there is no folder 'one'");
  expect("top", "there is no run in 'runs'");
  expect("top nowhere", "there is no folder 'nowhere'");
  expect("top empty", "'empty' is not a run");
  expect("watch", "tightloop top");
  expect("ls", "tightloop runs");
}

}  // namespace
}  // namespace tightloop::testing
