// Faults planted into the training of a translator.
#include <c10/core/GradMode.h>

#include "guard/planted.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

/// Pairs of short sentences, byte by byte, one source of which has a token that no other has.
struct PlantedPairs {
  static constexpr int kPairs = 200, kLine = 90;

  TempFolder folder;
  Recipe recipe = small_recipe();

  PlantedPairs() {
    std::string data;
    Random random(3);
    const std::vector<std::string> animals{"cat", "dog", "cow", "hen", "pig"};
    for (int line = 1; line <= kPairs; ++line) {
      const auto& animal = animals[random.below(5)];
      data += fmt::format("the {} sat\t{} sat the\n", line == kLine ? "~~~" : animal, animal);
    }
    write_file(folder / "pairs.tsv", data);
    recipe.data.source = DataSource::kPairs, recipe.data.train = {(folder / "pairs.tsv").string()};
    recipe.data.seq_len = 32, recipe.data.batch_tokens = 64, recipe.data.holdout = 0;
    recipe.model.family = "seq2seq", recipe.model.width = 16;
    recipe.model.share_embeddings = recipe.model.tie_embeddings = false;
    recipe.train.steps = 100;
  }
  RunFolder run() const { return RunFolder::create(folder / "run", false); }
};

// An embedding that overflows as soon as it is scaled: who reads the token has no finite loss.
TEST(TranslatorFaults, APairWhoseLossIsNotFiniteIsNamedAndSurvived) {
  const PlantedPairs planted;
  const auto run = planted.run();
  Trainer trainer(planted.recipe, run);
  for (const auto& parameter : trainer.task().trained().all()) {
    if (parameter.name != "source_embedding") continue;
    c10::NoGradGuard no_grad;
    parameter.value['~'].fill_(3e38);
  }
  EXPECT_EQ(trainer.run().step, planted.recipe.train.steps) << "the run goes on to its end";
  const auto events = events_of(run, "skipped");
  ASSERT_GE(events.size(), 1u);
  for (const auto& event : events)
    EXPECT_EQ(event["rows"], (std::vector<std::string>{fmt::format(
                                 "'{}', line {}", planted.recipe.data.train[0], PlantedPairs::kLine)}))
        << event["text"];
}

TEST(TranslatorFaults, AHugeLearningRateStopsTheRunAndGoodCheckpointsStay) {
  const PlantedPairs planted;
  testing::expect_a_stop_by_max_skips(planted.recipe, planted.run());
}

}  // namespace
}  // namespace tightloop::testing
