#include <cmath>

#include "data/batch/loader.h"
#include "guard/planted.h"
#include "train/engine/staging.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::edit_weight;
using testing::error_of;
using testing::events_of;
using testing::Planted;

/// Trains a little, changes a weight of the checkpoint, goes on. Gives the one event about it.
template <class Edit>
nlohmann::json after_edit(const Planted& planted, const RunFolder& run, const std::string& weight,
                          const Edit& edit, std::string* failure) {
  auto recipe = planted.recipe;
  recipe.train.stop_at = 3;
  Trainer(recipe, run).run();
  edit_weight(run, weight, edit);
  recipe.train.stop_at = 0;
  Trainer trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  if (failure)
    *failure = error_of(ExitCode::kFailure, [&] { trainer.run(); });
  else
    trainer.run();
  const auto events = events_of(run, "skipped");
  EXPECT_EQ(events.size(), 1u) << "one incident, one event";
  return events.empty() ? nlohmann::json::object() : events[0];
}

TEST(Faults, AWeightThatIsNotFiniteIsNamed) {
  const Planted planted(0, "the cow sat");
  std::string failure;
  const auto event = after_edit(
      planted, planted.run(), "blocks.0.down", [](at::Tensor& weight) { weight[1][2] = NAN; }, &failure);
  EXPECT_EQ(event["cause"], "weight");
  EXPECT_EQ(event["tensor"], "blocks.0.down");
  EXPECT_EQ(event["layer"], "blocks.0");
  EXPECT_NE(event["text"].get<std::string>().find("1 of "), std::string::npos) << event["text"];
  EXPECT_NE(failure.find("in each of the first 3 steps"), std::string::npos) << failure;
}

TEST(Faults, ALayerThatOverflowsIsNamed) {
  const Planted planted(0, "the cow sat");
  std::string failure;
  const auto run = planted.run();
  const auto event = after_edit(
      planted, run, "blocks.0.gate_up", [](at::Tensor& weight) { weight.mul_(1e30); }, &failure);
  EXPECT_EQ(event["cause"], "activation");
  EXPECT_EQ(event["layer"], "blocks.0");
  EXPECT_EQ(event["tensor"], "blocks.0.gate_up");
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{3})) << "nothing of it is saved";
}

// An embedding that overflows in the first norm: whoever has the token has no finite loss.
TEST(Faults, ARowWhoseLossIsNotFiniteIsNamedAndSurvived) {
  Planted planted(61, "the ~ sat on the mat", /*micro_batch=*/4);
  planted.recipe.model.family = "gpt2", planted.recipe.model.tie_embeddings = false;
  const auto run = planted.run();
  const auto event = after_edit(
      planted, run, "embedding",
      [](at::Tensor& weight) {
        for (int64_t i = 0; i < weight.size(1); ++i) weight['~'][i] = i % 2 ? 3e38 : -3e38;
      },
      nullptr);
  EXPECT_EQ(event["global_step"], 61 / 4 + 1);
  EXPECT_EQ(event["rows"], std::vector<std::string>{planted.origin()}) << event["text"];
  EXPECT_EQ(event["cause"], "activation");
  EXPECT_EQ(load_checkpoint(run.checkpoints()).step, Planted::kLines / 4) << "the run goes on to its end";
}

TEST(Faults, ABatchWithNothingToLearnIsNamedAndSurvived) {
  const auto text = "the cow ran to the very long road and the cow met mates";  // the first s is past the row
  Planted masked(30, text);
  masked.recipe.data.loss_after = "s", masked.recipe.data.seq_len = 24, masked.recipe.train.steps = 50;
  const auto run = masked.run();
  EXPECT_EQ(Trainer(masked.recipe, run).run().step, 50);
  const auto events = events_of(run, "skipped");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["cause"], "loss_mask");
  EXPECT_EQ(events[0]["global_step"], 31);
  EXPECT_EQ(events[0]["rows"], std::vector<std::string>{masked.origin()});
}

TEST(Faults, GradientsThatOverflowAtTheLossScaleAreNamed) {
  Planted planted(0, "the cow sat");
  planted.recipe.train.precision = Precision::kFp16, planted.recipe.train.loss_scale = 1e30;
  planted.recipe.train.steps = 12;
  const auto run = planted.run();
  Trainer(planted.recipe, run).run();
  const auto events = events_of(run, "skipped");
  ASSERT_EQ(events.size(), 1u) << "after a while: looking for the scale is no incident";
  EXPECT_EQ(events[0]["global_step"], 10);
  EXPECT_EQ(events[0]["cause"], "loss_scale") << events[0]["text"];
}

TEST(Faults, ALossThatIsNotFiniteIsLookedIntoThoughTheScaleWasSearchedForBefore) {
  Planted planted(2, "the ~ sat on the mat");
  planted.recipe.model.family = "gpt2", planted.recipe.model.tie_embeddings = false;
  planted.recipe.train.steps = 4, planted.recipe.train.stop_at = 1;
  const auto run = planted.run();
  Trainer(planted.recipe, run).run();
  edit_weight(run, "embedding", [](at::Tensor& weight) {
    for (int64_t i = 0; i < weight.size(1); ++i) weight['~'][i] = i % 2 ? 3e38 : -3e38;
  });
  auto recipe = planted.recipe;
  recipe.train.precision = Precision::kFp16, recipe.train.loss_scale = 1e30, recipe.train.stop_at = 0;
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  const auto events = events_of(run, "skipped");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["global_step"], 3);
}

TEST(Faults, ATokenBeyondTheVocabularyIsADataErrorThatNamesTheLine) {
  auto store = std::make_shared<TokenStore>(1 << 27);
  for (int i = 0; i < 4; ++i) {
    store->set_origin(0, 10 + i);
    store->append(std::vector<int32_t>{1, 2, i == 2 ? 99999999 : 3, 4}, {});
  }
  store->name_files({"books.jsonl"});
  Loader loader(store, [] {
    LoaderOptions options;
    options.rows = 4, options.seq_len = 4, options.rows_kind = RowKind::kPad;
    options.shuffle = false, options.threads = 0;
    return options;
  }());
  const Batch& batch = loader.next();
  const auto message = error_of(ExitCode::kData, [&] {
    check_ids(batch, 257, [&](int64_t row) { return loader.origins(batch.index).at(row); });
  });
  EXPECT_NE(message.find("token id 99999999"), std::string::npos) << message;
  EXPECT_NE(message.find("('books.jsonl', line 12)"), std::string::npos) << message;
}

TEST(Faults, MaxSkipsStopsTheRunAndNamesTheLastGoodCheckpoint) {
  const Planted planted(0, "the cow sat");
  testing::expect_a_stop_by_max_skips(planted.recipe, planted.run());
}

}  // namespace
}  // namespace tightloop
