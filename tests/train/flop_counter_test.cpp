#include "train/report/flop_counter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "model/model_size.h"
#include "ops/compare.h"
#include "support.h"
#include "train/engine/autocast.h"
#include "train/engine_fixture.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using at::Tensor;
using testing::EngineFixture;
using testing::random_tensor;

double counted(const std::function<void()>& work) {
  const FlopCounter counter;
  work();
  return counter.count();
}

class CountedFlops : public testing::OnDevice {
 protected:
  Tensor some(at::IntArrayRef shape) { return random_tensor(shape, at::kFloat, 1).to(device); }
};

TEST_P(CountedFlops, OfProductsAreTwoForEachMultiplication) {
  const Tensor a = some({3, 5}), b = some({5, 7});
  Tensor c = some({3, 7});
  EXPECT_EQ(counted([&] { at::mm(a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(counted([&] { at::mm_out(c, a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(counted([&] { at::addmm(c, a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(counted([&] { c.addmm_(a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(counted([&] { at::addmm_out(c, c, a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(counted([&] { at::baddbmm(some({4, 3, 7}), some({4, 3, 5}), some({4, 5, 7})); }), 2 * 4 * 105);
  EXPECT_EQ(counted([&] { at::softmax(c + c * 2, -1); }), 0) << "only products count";
}

TEST_P(CountedFlops, OfALayerCountOnceAndTwiceAgainInItsBackwardPass) {
  const Tensor x = some({2, 3, 5}).requires_grad_(), w = some({7, 5}).requires_grad_(),
               b = some({7}).requires_grad_();
  Tensor y;
  EXPECT_EQ(counted([&] { y = at::linear(x, w, b); }), 2 * 6 * 35);
  EXPECT_EQ(counted([&] { y.sum().backward(); }), 4 * 6 * 35);
  EXPECT_EQ(counted([&] { y = at::linear(x.detach(), w, b); }), 2 * 6 * 35);
  EXPECT_EQ(counted([&] { y.sum().backward(); }), 2 * 6 * 35) << "nothing before it learns";
  const Autocast autocast(device.type(), at::kBFloat16);
  EXPECT_EQ(counted([&] { at::mm(x[0], w.t()); }), 2 * 3 * 35) << "autocast calls it once more";
}

TEST_P(CountedFlops, OfAttentionAreItsProductsWhateverTheKernel) {
  constexpr int64_t B = 2, H = 3, T = 10, S = 16;
  for (const bool odd : {false, true}) {
    const auto dtype = odd ? at::kDouble : at::kFloat;
    const auto part = [&] { return some({B, H, T, S}).to(dtype).requires_grad_(); };
    const Tensor q = part(), k = part(), v = part();
    Tensor y;
    EXPECT_EQ(counted([&] { y = at::scaled_dot_product_attention(q, k, v, {}, 0, true); }),
              4 * B * H * T * T * S);
    EXPECT_EQ(counted([&] { (y * y).sum().backward(); }), 8 * B * H * T * T * S);
  }
}

/// Operations of a token in a step of a small model, counted and from shapes.
std::pair<double, double> of_token(at::Device device, const std::string& family, AutoSwitch head,
                                   const std::string& checkpointing = "none") {
  constexpr int64_t kLength = 16, kRows = 4;
  ModelConfig sizes;
  sizes.family = family, sizes.layers = 2, sizes.width = 32, sizes.heads = 2, sizes.ffn = 64;
  sizes.experts = 4, sizes.experts_per_token = 2, sizes.expert_ffn = 32;
  sizes.gradient_checkpointing = checkpointing;
  if (family == "nanochat") sizes.width = 128, sizes.heads = 1;
  sizes.resolve(48, kLength);
  auto model = make_model(sizes, /*seed=*/1);
  const auto dtype = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  model->parameters().to(device, dtype);
  TrainConfig config;
  config.fused_head = head;
  EngineFixture fixture(*model, config, dtype, device);
  fixture.engine.count_flops(true);
  const Tensor ids = at::randint(0, 48, {kRows, kLength}, at::kLong);
  fixture.add({ids, ids});
  fixture.pass(true, true);
  return {fixture.engine.flops() / (kRows * kLength), flops_per_token(sizes, kLength)};
}

TEST_P(CountedFlops, OfAModelAreThoseOfItsShapes) {
  for (const auto head : {AutoSwitch::kOff, AutoSwitch::kOn})
    for (const char* family : {"llama", "gpt2", "nanochat", "qwen3_moe"}) {
      const auto [count, shapes] = of_token(device, family, head);
      EXPECT_NEAR(count, shapes, (device.is_cuda() ? 1e-2 : 1e-9) * shapes)
          << family << ", fused head " << head;
    }
}

TEST_P(CountedFlops, OfAModelGrowByWhatIsComputedTwice) {
  const double plain = of_token(device, "llama", AutoSwitch::kOn).first,
               twice = of_token(device, "llama", AutoSwitch::kOn, "all").first;
  EXPECT_GT(twice, 1.2 * plain);
  EXPECT_LT(twice, 4.0 / 3 * plain) << "the head is not";
}

/// On a GPU the middle passes of the first step replay a graph already.
TEST_P(CountedFlops, OfARunAreCountedWhenDueAndChangeNothing) {
  const testing::TempFolder folder;
  auto recipe = testing::small_recipe();
  recipe.train.steps = 12, recipe.train.accumulate = 5, recipe.train.logging_steps = 2;
  recipe.train.device = GetParam();
  recipe.log.flops_steps = 5;
  std::vector<std::vector<double>> losses;
  const auto told = [&](FlopCount flops) {
    recipe.log.flops = flops;
    const auto run = RunFolder::create(folder / std::string(name_of(flops)), false);
    losses.push_back(Trainer(recipe, run).run().losses);
    std::map<int64_t, std::pair<double, double>> found;
    std::ifstream in(run.metrics());
    for (std::string line; std::getline(in, line);) {
      const auto values = nlohmann::json::parse(line);
      if (values.contains("perf/flops_per_token"))
        found[values["global_step"]] = {values["perf/flops_per_token"],
                                        values.value("perf/flops_per_token_counted", 0.0)};
    }
    return found;
  };
  const auto shapes = told(FlopCount::kShapes), profiler = told(FlopCount::kProfiler);
  EXPECT_EQ(losses[0], losses[1]);
  ASSERT_EQ(shapes.size(), 4u);
  for (const int64_t step : {2, 6, 10, 12}) {
    ASSERT_TRUE(shapes.contains(step) && profiler.contains(step)) << step;
    EXPECT_GT(shapes.at(step).first, 0);
    EXPECT_EQ(shapes.at(step).second, 0) << "not counted";
    EXPECT_EQ(profiler.at(step).first, shapes.at(step).first);
    EXPECT_NEAR(profiler.at(step).second, shapes.at(step).first, 0.05 * shapes.at(step).first);
  }
}

ON_EVERY_DEVICE(CountedFlops);

}  // namespace
}  // namespace tightloop
