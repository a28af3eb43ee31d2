#include "train/run/checkpoint_name.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "core/files.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_diff.h"
#include "train/run/checkpoint_list.h"
#include "train/run/saved_model.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

NamedTensors filled(double value) { return {{"w", at::full({4, 4}, value)}}; }

/// A run with checkpoints of steps 10, 20 and 30, of which the second is the best.
void make_checkpoints(const fs::path& run,
                      const nlohmann::json& metadata = {{"best", {{"step", 20}, {"loss", 1.5}}}}) {
  for (const int64_t step : {10, 20, 30})
    save_checkpoint(run / "checkpoints", step, filled(static_cast<double>(step)), filled(1), metadata);
}

TEST(CheckpointNames, StandForFolders) {
  const TempFolder folder;
  make_checkpoints(folder / "a");
  const auto resolve = [&](const std::string& name) { return resolve_checkpoint_name(folder / name); };
  EXPECT_EQ(resolve("a@best"), folder / "a/checkpoints/step-00000020");
  EXPECT_EQ(resolve("a@30"), folder / "a/checkpoints/step-00000030");
  EXPECT_EQ(resolve("a@last"), folder / "a");
  EXPECT_EQ(resolve("a"), folder / "a");
  EXPECT_EQ(resolve("b@best"), folder / "b@best") << "no such run: whoever opens it says so";
  const auto place = checkpoint_place(resolve("a@best"));
  EXPECT_EQ(place.run, folder / "a");
  EXPECT_EQ(place.step, 20);
  EXPECT_EQ(checkpoint_place(folder / "a").run, folder / "a");
  EXPECT_FALSE(checkpoint_place(folder / "a").step);
}

TEST(CheckpointNames, OneThatWasMovedElsewhereIsNotTheRunsOwn) {
  const TempFolder folder;
  make_checkpoints(folder / "a");
  make_folder(folder / "a/old");
  fs::copy(folder / "a/checkpoints/step-00000030", folder / "a/old/step-00000030");
  const auto place = checkpoint_place(folder / "a/old/step-00000030");
  EXPECT_FALSE(place.step);
  EXPECT_EQ(place.run, folder / "a/old/step-00000030");
  const auto message = error_of(ExitCode::kUsage, [&] { SavedModel model(folder / "a/old/step-00000030"); });
  EXPECT_NE(message.find("not in the folder checkpoints/ of a run"), std::string::npos) << message;
}

TEST(CheckpointNames, AFolderWithSuchANameIsThatFolder) {
  const TempFolder folder;
  make_checkpoints(folder / "a");
  make_checkpoints(folder / "a@best");
  EXPECT_EQ(resolve_checkpoint_name(folder / "a@best"), folder / "a@best");
  EXPECT_EQ(resolve_checkpoint_name(folder / "a@best@10"), folder / "a@best/checkpoints/step-00000010");
}

TEST(CheckpointNames, ErrorsSayWhatThereIs) {
  const TempFolder folder;
  make_checkpoints(folder / "a", nlohmann::json::object());
  const auto message = [&](ExitCode code, const std::string& name) {
    return error_of(code, [&] { resolve_checkpoint_name(folder / name); });
  };
  EXPECT_NE(message(ExitCode::kCheckpoint, "a@best").find("knows no best"), std::string::npos);
  EXPECT_NE(message(ExitCode::kCheckpoint, "a@25").find("there are: 10, 20, 30"), std::string::npos);
  EXPECT_NE(message(ExitCode::kUsage, "a@first").find("best, last or a step"), std::string::npos);
  EXPECT_NE(message(ExitCode::kUsage, "a@-3").find("best, last or a step"), std::string::npos);
  make_checkpoints(folder / "b");
  remove_path(folder / "b/checkpoints/step-00000020");
  EXPECT_NE(message(ExitCode::kCheckpoint, "b@best").find("step 20, the best one,"), std::string::npos);
}

TEST(CheckpointNames, WhyThereIsNoBestIsSaidAsItIs) {
  const TempFolder folder;
  make_checkpoints(folder / "a", nlohmann::json::object());
  const auto message = [&] {
    return error_of(ExitCode::kCheckpoint, [&] { resolve_checkpoint_name(folder / "a@best"); });
  };
  EXPECT_NE(message().find("no step of it was evaluated"), std::string::npos) << message();
  write_file_whole(
      folder / "a/metrics.jsonl",
      "{\"global_step\": 15, \"eval/loss\": 2.5}\n{\"global_step\": 30, \"training/loss\": 2}\n");
  EXPECT_NE(message().find("evaluated at step 15, and no checkpoint says"), std::string::npos) << message();
  write_file_whole(folder / "a/events.jsonl", "{\"global_step\": 15, \"event\": \"save_failed\"}\n");
  EXPECT_NE(message().find("evaluated at step 15, whose save failed"), std::string::npos) << message();
}

TEST(CheckpointNames, ANewRunHasNoAtInItsName) {
  refuse_checkpoint_name("a@b/mine");
  for (const char* name : {"runs/mine@best", "runs/mine@best/", "mine@"})
    EXPECT_NE(
        error_of(ExitCode::kUsage, [&] { refuse_checkpoint_name(name); }).find("Choose a name without it"),
        std::string::npos)
        << name;
}

TEST(CheckpointNames, TheBestIsKnownThoughTheNewestIsDamaged) {
  const TempFolder folder;
  make_checkpoints(folder / "a");
  write_file_whole(folder / "a/checkpoints/step-00000030/state.json", "{");
  EXPECT_EQ(best_step_of(folder / "a/checkpoints"), 20);
}

TEST(CheckpointList, SaysWhatEachIs) {
  const TempFolder folder;
  const RunFolder run(folder / "a");
  make_checkpoints(run.root());
  save_checkpoint(run.checkpoints(), 35, filled(1), filled(1), {{"passing", 35}, {"best", {{"step", 20}}}});
  write_file_whole(run.config(), "train:\n  keep_every: 10\n");
  auto all = list_checkpoints(run);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_TRUE(all[1].best && all[1].kept && !all[1].newest);
  EXPECT_TRUE(all[3].newest && all[3].in_passing && !all[3].kept && !all[3].best);
  EXPECT_GT(all[0].bytes, 2 * 16 * sizeof(float));
  for (const auto& facts : all) EXPECT_EQ(facts.health, CheckpointHealth::kUnverified);

  verify_checkpoint(run.checkpoints(), 20);
  EXPECT_EQ(list_checkpoints(run)[1].health, CheckpointHealth::kVerified);
  update_metadata(run.checkpoints(), 20, {{"best", {{"step", 20}}}});
  EXPECT_EQ(list_checkpoints(run)[1].health, CheckpointHealth::kVerified) << "its tensors are the same";
  const fs::path model = run.checkpoints() / "step-00000020/model.safetensors";
  auto bytes = read_file(model);
  bytes.back() ^= 1;
  write_file_whole(model, bytes);
  EXPECT_EQ(list_checkpoints(run)[1].health, CheckpointHealth::kUnverified) << "it was written since";
  const auto message = error_of(ExitCode::kCheckpoint, [&] { verify_checkpoint(run.checkpoints(), 20); });
  EXPECT_NE(message.find("model.safetensors' is damaged"), std::string::npos) << message;
  EXPECT_EQ(list_checkpoints(run)[1].health, CheckpointHealth::kDamaged) << "what was found is kept";
  EXPECT_EQ(list_checkpoints(run)[1].problem, message);
  bytes.back() ^= 1;
  const auto time = fs::last_write_time(model);
  write_file_whole(model, bytes);
  fs::last_write_time(model, time);
  EXPECT_EQ(list_checkpoints(run)[1].health, CheckpointHealth::kUnverified)
      << "restored, with the time that the damaged one had";
  bytes.pop_back();
  write_file_whole(run.checkpoints() / "step-00000035/model.safetensors", bytes);
  all = list_checkpoints(run);
  EXPECT_EQ(all[3].health, CheckpointHealth::kDamaged);
  EXPECT_NE(all[3].problem.find("truncated"), std::string::npos) << all[3].problem;
  EXPECT_TRUE(all[2].newest) << "the newest that can be used";
}

TEST(CheckpointDiff, NamesTensorsSettingsAndMetadata) {
  const auto checkpoint = [](double value, const char* rate) {
    Checkpoint made{.step = 1,
                    .metadata = {{"settings", std::string("train:\n  lr: ") + rate + "\n  steps: 5\n"}},
                    .weights = {},
                    .optimizer = {}};
    made.weights.tensors = {{"same", at::full({2}, 1.0)}, {"w", at::full({4}, value)}};
    return made;
  };
  auto a = checkpoint(2, "0.1"), b = checkpoint(2.5, "0.2");
  b.metadata["consumed"] = 8;
  b.optimizer.tensors = {{"m", at::full({1}, 0.0)}};
  const auto found = compare_checkpoints(a, b);
  EXPECT_EQ(found.same, 1u);
  ASSERT_EQ(found.tensors.size(), 2u);
  EXPECT_EQ(found.tensors[0].name, "w");
  EXPECT_DOUBLE_EQ(found.tensors[0].largest, 0.5);
  EXPECT_DOUBLE_EQ(found.tensors[0].relative, 0.25);
  EXPECT_EQ(found.tensors[1].note, "only in the second");
  ASSERT_EQ(found.settings.size(), 1u);
  EXPECT_EQ(found.settings[0].line(), "train.lr: was 0.1, is 0.2");
  EXPECT_EQ(found.metadata.at("consumed").second, 8);
  // What is not there yet is infinite in a window of losses.
  a.optimizer.tensors = {{"m", at::full({3}, INFINITY)}, {"n", at::full({3}, NAN)}};
  b.optimizer.tensors = {{"m", at::full({3}, INFINITY)}, {"n", at::full({3}, NAN)}};
  EXPECT_EQ(compare_checkpoints(a, b).same, 3u);
  b.optimizer.tensors.at("m")[0] = 2.0, a.optimizer.tensors.at("n")[1] = 1.0,
  b.optimizer.tensors.at("n")[1] = 3;
  const auto windows = compare_checkpoints(a, b).tensors;
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[1].largest, 0);
  EXPECT_EQ(windows[1].relative, 0);
  EXPECT_EQ(windows[1].not_finite, 1);
  EXPECT_EQ(windows[2].largest, 2);
  EXPECT_EQ(windows[2].not_finite, 0);
  const auto none = compare_checkpoints(a, a);
  EXPECT_TRUE(none.tensors.empty() && none.settings.empty() && none.metadata.empty());
}

}  // namespace
}  // namespace tightloop
