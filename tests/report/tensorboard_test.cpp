// TensorBoard itself reads what a run wrote for it.
#include "train/report/tensorboard_sink.h"

#include <cmath>

#include "report/watch.h"
#include "train/report/sinks.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

#define SKIP_WITHOUT_WATCH() \
  if (!fs::exists(watch_python())) GTEST_SKIP() << "not here: " << watch_python() << " (tools/setup --watch)"

/// [[time, step, value], ...] of a scalar against the lines of metrics.jsonl.
void expect_scalar(const nlohmann::json& shown, const std::string& name,
                   const std::vector<nlohmann::json>& lines) {
  ASSERT_TRUE(shown.contains(name)) << name << " in " << shown.dump().substr(0, 400);
  const auto& points = shown.at(name);
  size_t point = 0;
  for (const auto& line : lines) {
    if (!line.contains(name)) continue;
    ASSERT_LT(point, points.size()) << name;
    EXPECT_EQ(points[point][1], line.at("global_step")) << name;
    EXPECT_EQ(points[point][0].get<double>(), line.at("time").get<double>()) << name;
    EXPECT_EQ(points[point][2].get<float>(), line.at(name).get<float>()) << name;
    ++point;
  }
  EXPECT_EQ(point, points.size()) << name << ": no step is there twice";
}

TEST(Tensorboard, ShowsARunThatWasStoppedAndResumedOnce) {
  SKIP_WITHOUT_WATCH();
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.log.detail_steps = 4, recipe.train.eval_steps = 8, recipe.train.save_steps = 12;
  recipe.train.keep_checkpoints = 10, recipe.train.steps = 40, recipe.train.keep_best = false;
  Trainer(recipe, run).run();
  // A run that was killed at its end goes on after step 12: what came later is written a second time.
  const auto saved = folder_entries(run.checkpoints());
  ASSERT_EQ(saved.size(), 4u);
  for (size_t i = 1; i < saved.size(); ++i) fs::remove_all(saved[i]);
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  ASSERT_EQ(folder_entries(run.tensorboard()).size(), 2u);
  const auto lines = json_lines(run.metrics());
  for (const char* fast : {"--load_fast=true", "--load_fast=false"}) {
    const auto shown = read_back("read_tensorboard.py", folder.path(), fast);
    ASSERT_TRUE(shown.contains("run/tensorboard")) << shown;
    const auto& scalars = shown.at("run/tensorboard").at("scalars");
    for (const char* name : {"training/loss", "training/lr", "training/grad_norm", "eval/loss", "syncs"})
      expect_scalar(scalars, name, lines);
    EXPECT_FALSE(scalars.contains("global_step"));
    EXPECT_FALSE(scalars.contains("time"));
  }
}

TEST(Tensorboard, ShowsHistogramsAndSamples) {
  SKIP_WITHOUT_WATCH();
  const TempFolder folder;
  {
    TensorboardSink sink(folder / "run", 0);
    for (const int64_t step : {10, 20}) {
      sink.write({{{"global_step", step},
                   {"time", 1e9 + static_cast<double>(step)},
                   {"training/loss", step == 10 ? nlohmann::json("NaN") : nlohmann::json(2.5)},
                   {"training/grad_norm_by_layer", {1, 2, 2, 4}},
                   {"training/expert_loads", {{0.25, 0.75}, {0.5, 0.5}}}}});
      for (const char* text : {"first <b>one</b>\n# no title", "second"})
        sink.sample({{"global_step", step},
                     {"time", 1e9},
                     {"kind", "answer"},
                     {"prompt", "what?"},
                     {"text", text},
                     {"reference", "that"}});
    }
    sink.flush();
  }
  const auto shown = read_back("read_tensorboard.py", folder.path(), "--load_fast=true").at("run");
  const auto& norms = shown.at("histograms").at("training/grad_norm_by_layer");
  ASSERT_EQ(norms.size(), 2u);
  EXPECT_EQ(norms[1][1], 20);
  double count = 0;
  for (const auto& bucket : norms[1][2]) count += bucket[2].get<double>();
  EXPECT_EQ(count, 4);
  EXPECT_EQ(norms[1][2].front()[0], 1.0);
  EXPECT_EQ(norms[1][2].back()[1], 4.0);
  EXPECT_TRUE(shown.at("histograms").contains("training/expert_loads/1"));
  ASSERT_TRUE(shown.at("text").contains("samples/answer/2")) << shown.at("text");
  const auto& texts = shown.at("text").at("samples/answer/1");
  ASSERT_EQ(texts.size(), 2u) << "one a step";
  const auto html = texts[0].at("text").get<std::string>();
  EXPECT_NE(html.find("first &lt;b&gt;one&lt;/b&gt;\n# no title"), std::string::npos) << html;
  EXPECT_NE(html.find("what?"), std::string::npos) << html;
  EXPECT_NE(html.find("that"), std::string::npos) << html;
}

}  // namespace
}  // namespace tightloop::testing
