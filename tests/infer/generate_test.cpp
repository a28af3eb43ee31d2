#include "infer/generate.h"

#include <ATen/ops/log.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <map>

#include "core/random.h"
#include "model/llama.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using Rows = std::vector<std::vector<int32_t>>;

std::unique_ptr<LanguageModel> small_model() {
  ModelConfig config;
  config.layers = 2, config.width = 32, config.heads = 4, config.init_std = 0.3;
  config.resolve(40, 0);
  return make_model(config, 7);
}

SamplingConfig greedy(int64_t tokens) {
  SamplingConfig sampling;
  sampling.temperature = 0, sampling.max_tokens = tokens;
  return sampling;
}

// The slow way: everything again for every token, no cache.
std::vector<int32_t> slow_greedy(LanguageModel& model, std::vector<int32_t> ids, int32_t stop,
                                 int64_t tokens) {
  c10::NoGradGuard no_grad;
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < tokens) {
    const auto input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    const auto logits = model.logits(model.forward(input).hidden_BTD)[0][static_cast<int64_t>(ids.size()) - 1];
    const auto next = static_cast<int32_t>(logits.argmax().item<int64_t>());
    if (next == stop) break;
    made.push_back(next);
    ids.push_back(next);
  }
  return made;
}

TEST(Generate, GreedyEqualsTheSlowWay) {
  const auto model = small_model();
  const Rows prompts{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const auto answers = generate(*model, prompts, /*stop=*/-1, greedy(20));
  for (size_t row = 0; row < prompts.size(); ++row)
    EXPECT_EQ(answers[row], slow_greedy(*model, prompts[row], -1, 20)) << row;
}

TEST(Generate, StopsRowByRow) {
  const auto model = small_model();
  const Rows prompts{{1, 2, 3}, {4, 5, 6}};
  const auto free = generate(*model, prompts, -1, greedy(12));
  const int32_t stop = free[0][3];
  const auto stopped = generate(*model, prompts, stop, greedy(12));
  for (size_t row = 0; row < prompts.size(); ++row)
    EXPECT_EQ(stopped[row], slow_greedy(*model, prompts[row], stop, 12));
}

TEST(Generate, TheCallbackSeesEveryToken) {
  const auto model = small_model();
  Rows seen(2);
  const auto answers =
      generate(*model, {{1}, {2}}, -1, greedy(5), [&](size_t row, int32_t id) { seen[row].push_back(id); });
  EXPECT_EQ(seen, answers);
}

TEST(Generate, TheSeedDecides) {
  const auto model = small_model();
  SamplingConfig sampling;
  sampling.max_tokens = 30, sampling.temperature = 1;
  const auto a = generate(*model, {{1, 2}}, -1, sampling), b = generate(*model, {{1, 2}}, -1, sampling);
  sampling.seed = 2;
  EXPECT_EQ(a, b);
  EXPECT_NE(a, generate(*model, {{1, 2}}, -1, sampling));
}

TEST(Generate, AnEmptyPromptIsRefused) {
  const auto model = small_model();
  error_of(ExitCode::kUsage, [&] { generate(*model, {{}}, -1, greedy(5)); });
  EXPECT_TRUE(generate(*model, {}, -1, greedy(5)).empty());
}

std::map<int32_t, double> frequencies(const SamplingConfig& sampling) {
  const auto logits = at::log(at::tensor({0.5f, 0.3f, 0.15f, 0.05f})).unsqueeze(0);
  Random random(3);
  std::map<int32_t, double> counts;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const double draw = random.uniform();
    counts[sample(logits, sampling, std::span(&draw, 1))[0]] += 1.0 / kDraws;
  }
  return counts;
}

TEST(Sample, FollowsTheProbabilities) {
  SamplingConfig sampling;
  sampling.temperature = 1;
  auto counts = frequencies(sampling);
  EXPECT_NEAR(counts[0], 0.5, 0.015);
  EXPECT_NEAR(counts[1], 0.3, 0.015);
  EXPECT_NEAR(counts[3], 0.05, 0.01);
}

TEST(Sample, TopKAndTopPCutTheTail) {
  SamplingConfig sampling;
  sampling.temperature = 1, sampling.top_k = 2;
  auto counts = frequencies(sampling);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[0], 0.5 / 0.8, 0.015);
  sampling.top_k = 0, sampling.top_p = 0.9;
  counts = frequencies(sampling);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[0], 0.5 / 0.95, 0.015);
  sampling.top_p = 0;
  EXPECT_EQ(frequencies(sampling).size(), 1u);
}

}  // namespace
}  // namespace tightloop
