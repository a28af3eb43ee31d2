// Checkpoints by name (runs/a@best), and what 'tightloop checkpoint' says and does about them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;
using testing::tiny;

/// A run with checkpoints of steps 2, 4, 6 and 8. Others are copies of it.
class Checkpoints : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = new TempFolder;
    const auto outcome = run(made_->path(), "tightloop train " + tiny() +
                                                "--train.steps 8 --train.save_steps 2 --train.eval_steps 4 "
                                                "--train.keep_checkpoints 0 --run.name mine");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  static void TearDownTestSuite() {
    delete made_;
    made_ = nullptr;
  }
  void SetUp() override { fs::copy(*made_ / "runs", folder_ / "runs", fs::copy_options::recursive); }

  testing::Outcome in(const std::string& command) const {
    return run(folder_.path(), "TIGHTLOOP_NO_CUDA=1 tightloop " + command);
  }
  nlohmann::json json(const std::string& command) const {
    const auto outcome = run(folder_.path(), "tightloop " + command + " --json 2>/dev/null");
    return nlohmann::json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  }
  void damage(int step, const char* file) const {
    const fs::path path = folder_ / "runs/mine/checkpoints" / ("step-0000000" + std::to_string(step)) / file;
    auto bytes = read_file(path);
    bytes[bytes.size() / 2] ^= 1;
    write_file_whole(path, bytes);
  }

  static TempFolder* made_;
  const TempFolder folder_;
};

TempFolder* Checkpoints::made_ = nullptr;

TEST_F(Checkpoints, EveryVerbTakesThemByName) {
  for (const char* command :
       {"generate --run runs/mine@best --prompt 'reverse a =' --max-tokens 2",
        "generate --run mine@4 --prompt 'reverse a =' --max-tokens 2",
        "generate --run runs/mine/@last --prompt 'reverse a =' --max-tokens 2", "inspect loss --run mine@2",
        "inspect batch --run mine@2", "fit mine@4", "model show mine@4", "export --run mine@6 --to exported",
        "average --run mine@6 --last 2 --output runs/averaged"}) {
    const auto outcome = in(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
  }
  EXPECT_EQ(json("eval --run mine@4")["step"], 4);
  EXPECT_EQ(json("eval --run mine@last")["step"], 8);
  EXPECT_TRUE(contains(in("checkpoint ls runs/averaged").output, " 6 ")) << "the last two up to step 6";
  const auto child = in("train " + tiny() + "--train.init_from mine@2 --train.steps 1 --run.name child");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(contains(child.output, "step-00000002 after its step 2")) << child.output;
}

TEST_F(Checkpoints, AFolderWithAnAtInItsNameIsItself) {
  fs::rename(folder_ / "runs/mine", folder_ / "runs/mine@4");
  EXPECT_EQ(json("eval --run mine@4")["step"], 8);
  EXPECT_EQ(json("eval --run runs/mine@4@2")["step"], 2);
}

TEST_F(Checkpoints, ARunGoesOnFromItsNewestAlone) {
  const auto back = in("train --resume mine@4 --train.steps 10");
  EXPECT_EQ(back.exit_code, 2) << back.output;
  EXPECT_TRUE(contains(back.output, "of step 8")) << back.output;
  EXPECT_TRUE(contains(back.output, "--train.init_from runs/mine@4")) << back.output;
  for (const char* name : {"mine@8", "mine@last"}) {
    const auto on = in(std::string("train --resume ") + name + " --train.steps 8");
    EXPECT_EQ(on.exit_code, 0) << on.output;
  }
}

TEST_F(Checkpoints, AreListed) {
  const auto all = json("checkpoint ls mine")["checkpoints"];
  ASSERT_EQ(all.size(), 4u) << all;
  EXPECT_EQ(all[3]["step"], 8);
  EXPECT_TRUE(all[3]["newest"]) << all;
  EXPECT_EQ(all[0]["state"], "not yet verified");
  const auto text = in("checkpoint ls");
  EXPECT_TRUE(contains(text.output, "newest")) << text.output;
  EXPECT_TRUE(contains(text.output, "best (loss ")) << text.output;
  EXPECT_EQ(in("checkpoint verify mine@2").exit_code, 0);
  EXPECT_EQ(json("checkpoint ls mine")["checkpoints"][0]["state"], "verified");
}

TEST_F(Checkpoints, DamageIsFoundAndNamed) {
  EXPECT_EQ(in("checkpoint verify mine").exit_code, 0);
  damage(4, "optimizer.safetensors");
  const auto found = in("checkpoint verify mine");
  EXPECT_EQ(found.exit_code, 4) << found.output;
  EXPECT_TRUE(contains(found.output, "step-00000004/optimizer.safetensors' is damaged")) << found.output;
  EXPECT_EQ(in("checkpoint verify mine --step 2").exit_code, 0);
  EXPECT_EQ(in("checkpoint verify mine --step 4").exit_code, 4);
  EXPECT_EQ(json("checkpoint verify mine@last")["checkpoints"].size(), 1u);
  const auto report = json("checkpoint verify mine")["checkpoints"];
  EXPECT_EQ(report[1]["whole"], false) << report;
  EXPECT_EQ(json("checkpoint ls mine")["checkpoints"][1]["state"], "damaged");
  EXPECT_EQ(report[2]["whole"], true) << report;
  EXPECT_TRUE(contains(in("checkpoint ls mine").output, "  damaged: optimizer.safetensors\n"));
  const auto twice = in("checkpoint verify mine 2>&1 >/dev/null");
  EXPECT_TRUE(contains(twice.output, "1 of 4 checkpoints cannot be used: step 4.")) << twice.output;
}

TEST_F(Checkpoints, AnEvaluationIsThatOfTheBest) {
  damage(8, "model.safetensors");
  in("checkpoint verify mine");
  for (const auto& one : json("checkpoint ls mine")["checkpoints"])
    EXPECT_TRUE(!one.contains("evaluation") || one["evaluation"]["step"] == one["step"]) << one;
}

TEST_F(Checkpoints, DamagedOnesAreNotAveraged) {
  damage(8, "model.safetensors"), damage(4, "model.safetensors");
  const auto made = in("average --run mine --last 2 --output runs/averaged");
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_TRUE(contains(made.output, "The checkpoint of step 8 is passed over: ")) << made.output;
  EXPECT_TRUE(contains(made.output, "The checkpoint of step 4 is passed over: ")) << made.output;
  EXPECT_FALSE(contains(made.output, "taken instead")) << made.output;
  EXPECT_TRUE(contains(made.output, "The weights of steps 2, 6, averaged into runs/averaged")) << made.output;
  const auto listed = in("runs");
  EXPECT_TRUE(contains(listed.output, "averaged  averaged ")) << listed.output;
  const auto resumed = in("train --resume runs/averaged");
  EXPECT_EQ(resumed.exit_code, 2) << resumed.output;
  EXPECT_TRUE(contains(resumed.output, "there is no training to go on with")) << resumed.output;
  const auto named = in("average --run mine@6 --last 2 --output runs/named");
  EXPECT_EQ(named.exit_code, 0) << named.output;
  EXPECT_FALSE(contains(named.output, "step 8")) << named.output;
  const auto few = in("average --run mine@4 --output runs/few");
  EXPECT_EQ(few.exit_code, 4) << few.output;
  EXPECT_TRUE(contains(few.output, "one can be read; averaging needs two")) << few.output;
}

TEST_F(Checkpoints, OneThatIsDamagedIsNotRecommended) {
  for (const int step : {2, 4, 6})
    fs::remove_all(folder_ / ("runs/mine/checkpoints/step-0000000" + std::to_string(step)));
  damage(8, "state.json");
  const auto outcome = in("eval --run mine@best");
  EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "none of its checkpoints can be read: ")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "mine@8")) << outcome.output;
}

TEST_F(Checkpoints, ARunWithoutAnyIsNamed) {
  fs::remove_all(folder_ / "runs/mine/checkpoints");
  const auto outcome = in("checkpoint ls mine");
  EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "there is no checkpoint in 'runs/mine/checkpoints'"))
      << outcome.output;
}

TEST_F(Checkpoints, AreCompared) {
  const auto same = in("checkpoint diff mine@8 mine");
  EXPECT_TRUE(contains(same.output, "no difference")) << same.output;
  const auto found = json("checkpoint diff mine@2 mine@8");
  EXPECT_GT(found["tensors"].size(), 5u);
  EXPECT_GT(found["tensors"][0]["largest"], 0);
  EXPECT_TRUE(found["metadata"].contains("consumed")) << found["metadata"];
  const auto text = in("checkpoint diff mine@2 mine@8");
  EXPECT_TRUE(contains(text.output, "was: runs/mine, step 2; is: runs/mine, step 8\n")) << text.output;
  EXPECT_TRUE(contains(text.output, "largest difference  relative  tensor\n")) << text.output;
  EXPECT_FALSE(contains(text.output, "nan") || contains(text.output, "...")) << text.output;
  EXPECT_TRUE(contains(text.output, "consumed: was 16, is 64")) << text.output;
}

TEST_F(Checkpoints, OlderOnesAreRemovedOnRequest) {
  const auto best = json("checkpoint ls mine")["checkpoints"];
  const auto dry = json("checkpoint prune mine --keep 1 --drop-best --dry-run");
  EXPECT_EQ(dry["removed"], (std::vector<int>{2, 4, 6})) << dry;
  EXPECT_EQ(json("checkpoint ls mine")["checkpoints"].size(), 4u);
  const auto every = json("checkpoint prune mine --keep 1 --keep-best --every 4 --dry-run");
  EXPECT_EQ(every["kept"], (std::vector<int>{4, 8})) << every;
  damage(8, "model.safetensors");
  const auto done = in("checkpoint prune mine --keep 1 --drop-best");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_TRUE(contains(done.output, "The checkpoint of step 8 cannot be used")) << done.output;
  EXPECT_TRUE(contains(done.output, "removed steps 2, 4")) << done.output;
  EXPECT_TRUE(fs::exists(folder_ / "runs/mine/checkpoints/step-00000006")) << "the newest that is whole";
  damage(6, "model.safetensors");
  const auto none = in("checkpoint prune mine --keep 1");
  EXPECT_EQ(none.exit_code, 4) << none.output;
  EXPECT_TRUE(fs::exists(folder_ / "runs/mine/checkpoints/step-00000006"));
}

TEST_F(Checkpoints, DamagedOnesAreNeitherCountedNorRemoved) {
  damage(2, "model.safetensors"), damage(6, "model.safetensors");
  const auto done = json("checkpoint prune mine --keep 2 --drop-best");
  EXPECT_EQ(done["removed"], std::vector<int>{}) << done;
  EXPECT_EQ(json("checkpoint prune mine --keep 1 --drop-best")["removed"], std::vector<int>{4});
}

TEST_F(Checkpoints, OneThatWasMovedElsewhereIsNotTakenForAnother) {
  fs::create_directories(folder_ / "backup/x");
  fs::copy(folder_ / "runs/mine/checkpoints/step-00000004", folder_ / "backup/x/step-00000004");
  for (const char* command : {"train --resume backup/x/step-00000004", "eval --run backup/x/step-00000004"}) {
    const auto outcome = in(command);
    EXPECT_EQ(outcome.exit_code, 2) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "not in the folder checkpoints/ of a run")) << outcome.output;
  }
}

TEST_F(Checkpoints, WhatShowsARunTakesThemForIt) {
  EXPECT_EQ(in("report mine@best").exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "runs/mine/report.html"));
  EXPECT_EQ(in("top mine@4 --once").exit_code, 0);
  EXPECT_EQ(in("runs --compare mine@2 mine@last").exit_code, 0);
  for (const char* command : {"report mine@3", "top mine@3 --once", "runs --compare mine@3 mine"})
    EXPECT_EQ(in(command).exit_code, 0) << command << ": no checkpoint is needed";
  EXPECT_EQ(in("report mine@bset").exit_code, 2) << "no name of a checkpoint";
}

TEST_F(Checkpoints, ARunKeepsSamplesAndAccuracyOfItsEvaluations) {
  const std::string samples = read_file(folder_ / "runs/mine/samples.jsonl");
  EXPECT_EQ(std::ranges::count(samples, '\n'), 6) << samples;
  EXPECT_TRUE(contains(samples, "\"global_step\":8")) << samples;
  const std::string log = read_file(folder_ / "runs/mine/log.txt");
  EXPECT_TRUE(contains(log, "step 8, a sample: ")) << log;
  EXPECT_TRUE(contains(log, ", accuracy ")) << log;
  EXPECT_TRUE(contains(read_file(folder_ / "runs/mine/metrics.jsonl"), "\"eval/accuracy\":"));
  const auto given =
      in("train " + tiny() + "--train.steps 2 --eval.prompts 'sort ba =' 'add 1, then 2' --run.name given");
  EXPECT_EQ(given.exit_code, 0) << given.output;
  const std::string own = read_file(folder_ / "runs/given/samples.jsonl");
  EXPECT_TRUE(contains(own, "\"prompt\":\"add 1, then 2\"")) << own;
  const auto none = in("train " + tiny() + "--train.steps 2 --eval.prompts_file nowhere --run.name none");
  EXPECT_EQ(none.exit_code, 3) << none.output;
}

TEST_F(Checkpoints, NothingIsRemovedWhileTheRunIsTrained) {
  const auto outcome =
      in("train --resume mine --train.steps 1000000 --train.logging_steps 1000 >/dev/null 2>&1 & child=$!; "
         "for i in $(seq 400); do [ -s runs/mine/.lock ] && break; sleep 0.05; done; "
         "owner=$(cut -d ' ' -f 2 runs/mine/.lock); tightloop checkpoint prune mine --keep 1; code=$?; "
         "kill $owner; wait $child; (exit $code)");  // $child is a shell around it
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "is in use by process")) << outcome.output;
}

}  // namespace
}  // namespace tightloop
