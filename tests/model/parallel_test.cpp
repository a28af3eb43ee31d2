// What a new family takes: its model (parallel.h) and the one line that adds it. All else follows.
#include "model/parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include "model/files/huggingface.h"
#include "model/model_of.h"
#include "model/model_size.h"
#include "support.h"
#include "train/allocations.h"
#include "train/engine/loss.h"
#include "train/settings/memory_plan.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

const AddFamily kAddParallel{
    {.name = "parallel", .make = make_family<testing::Parallel>, .defaults = testing::parallel_defaults}};

ModelConfig small_parallel(const std::string& checkpointing = "none") {
  ModelConfig config;
  config.family = "parallel", config.layers = 3, config.width = 64, config.heads = 4, config.vocab_size = 512;
  config.context = 96, config.gradient_checkpointing = checkpointing;
  config.resolve(0, 96);
  return config;
}

at::Tensor parallel_ids(int64_t rows, int64_t length) {
  return at::arange(rows * length, at::kLong).mul(37).remainder(512).view({rows, length});
}

TEST(NewFamily, IsChosenByItsName) {
  Recipe recipe;
  Config config = recipe.bind();
  config.apply({"--model.family", "parallel"});
  EXPECT_EQ(recipe.model.family, "parallel");
  EXPECT_NE(config.to_text("model").find("parallel"), std::string::npos);
  recipe.model.dropout = 0.1;
  testing::error_of(ExitCode::kUsage, [&] { recipe.model.resolve(257, 24); });
}

TEST(NewFamily, SizesComeFromItsParameters) {
  const auto config = small_parallel();
  const auto size = model_size(config);
  const int64_t D = 64, V = 512, matrices = 3 * (4 * D * D + 2 * D * 4 * D);
  EXPECT_EQ(size.total, V * D + matrices + 4 * D);
  EXPECT_EQ(size.total, make_model(config, 1)->parameters().count());
  EXPECT_EQ(size.embedding, V * D);
  EXPECT_EQ(size.matmul, matrices + V * D);
  EXPECT_EQ(flops_per_token(config, 96), 6.0 * (matrices + V * D) + 12.0 * D * 3 * 96);
}

TEST(NewFamily, LearnsInTheTrainer) {
  const testing::TempFolder folder;
  Recipe recipe = testing::small_recipe();
  recipe.model.family = "parallel", recipe.model.layers = 2, recipe.train.steps = 60;
  Trainer trainer(recipe, RunFolder::create(folder / "run", false));
  const auto result = trainer.run();
  EXPECT_EQ(result.step, 60);
  EXPECT_LT(result.losses.back(), 0.7 * result.losses.front());
  EXPECT_LT(*result.held_out_loss, 0.7 * result.losses.front());
}

TEST(NewFamily, BlocksAreComputedAgainWithTheSameGradients) {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const char* blocks : {"none", "2", "all"}) {
    const auto model = testing::model_of(small_parallel(blocks));
    model->logits(model->forward(parallel_ids(2, 40), {.training = true}).hidden_BTD)
        .pow(2)
        .mean()
        .backward();
    auto& own = gradients.emplace_back();
    for (const auto& parameter : model->parameters().all()) own.push_back(parameter.value.grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i]) && at::equal(gradients[0][i], gradients[2][i]));
}

TEST(NewFamily, ACacheChangesNothing) {
  c10::NoGradGuard no_grad;
  const auto model = testing::model_of(small_parallel());
  const auto ids = parallel_ids(2, 20);
  KvCache cache(3);
  const auto first = model->forward(ids.narrow(1, 0, 12), {.cache = &cache}).hidden_BTD,
             rest = model->forward(ids.narrow(1, 12, 8), {.cache = &cache}).hidden_BTD;
  EXPECT_LT(testing::relative_error(at::cat({first, rest}, 1), model->forward(ids).hidden_BTD), 1e-5);
}

TEST(NewFamily, ItsMemoryIsEstimatedFromItsParameters) {
  constexpr int64_t kRows = 8, kLength = 96;
  const auto config = small_parallel();
  TrainConfig train;
  train.micro_batch = kRows, train.fused_head = AutoSwitch::kOn;
  const MemoryPlanner planner(config, train, kLength, /*element=*/4, /*cuda=*/false);
  const auto plan = planner.plan(planner.written());
  const auto model = make_model(config, 1);
  const auto ids = parallel_ids(kRows, kLength);
  const testing::Allocations counter;
  loss_of(*model, {.inputs_BT = ids, .targets_BT = ids}, {.training = true, .fused_head = AutoSwitch::kOn})
      .objective.backward();
  const double ratio = (plan.gradients + plan.activations + plan.working) / counter.peak();
  RecordProperty("ratio", std::to_string(ratio));
  EXPECT_NEAR(ratio, 1, 0.25);
}

TEST(NewFamily, IsWrittenUnderItsOwnNamesAndReadBack) {
  const testing::TempFolder folder;
  const auto model = testing::model_of(small_parallel());
  export_weights(*model, at::kFloat, {}, folder.path());
  const auto read = read_hugging_face(folder.path());
  EXPECT_EQ(read.config.family, "parallel");
  const auto copy = make_model(read.config, 2);
  import_weights(folder.path(), *copy);
  for (const auto& parameter : model->parameters().all())
    EXPECT_TRUE(at::equal(parameter.value, copy->parameters().find(parameter.name)->value)) << parameter.name;
}

}  // namespace
}  // namespace tightloop
