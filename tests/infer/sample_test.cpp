#include "infer/sample.h"

#include <ATen/ops/log.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>

namespace tightloop {
namespace {

std::map<int32_t, double> frequencies(const SamplingConfig& sampling, std::vector<int32_t> seen = {}) {
  const auto logits = at::log(at::tensor({0.5f, 0.3f, 0.15f, 0.05f})).unsqueeze(0);
  std::map<int32_t, double> counts;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const SampleRow row{.sampling = &sampling, .seen = seen, .position = static_cast<uint64_t>(i)};
    counts[sample(logits, {&row, 1})[0]] += 1.0 / kDraws;
  }
  return counts;
}

SamplingConfig plain() {
  SamplingConfig sampling;
  sampling.temperature = 1;
  return sampling;
}

TEST(Sample, FollowsTheProbabilities) {
  auto counts = frequencies(plain());
  EXPECT_NEAR(counts[0], 0.5, 0.015);
  EXPECT_NEAR(counts[1], 0.3, 0.015);
  EXPECT_NEAR(counts[3], 0.05, 0.01);
}

TEST(Sample, TemperatureSharpens) {
  auto sampling = plain();
  sampling.temperature = 0.5;  // squares the probabilities
  auto counts = frequencies(sampling);
  const double total = 0.25 + 0.09 + 0.0225 + 0.0025;
  EXPECT_NEAR(counts[0], 0.25 / total, 0.015);
  EXPECT_NEAR(counts[1], 0.09 / total, 0.015);
}

TEST(Sample, TopKAndTopPCutTheTail) {
  auto sampling = plain();
  sampling.top_k = 2;
  auto counts = frequencies(sampling);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[0], 0.5 / 0.8, 0.015);
  sampling.top_k = 0, sampling.top_p = 0.9;
  counts = frequencies(sampling);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[0], 0.5 / 0.95, 0.015);
  sampling.top_p = 0;
  EXPECT_EQ(frequencies(sampling).size(), 1u);
  sampling.top_k = 3, sampling.top_p = 0.85;  // of the three that are left, two make up 0.842 of them
  EXPECT_EQ(frequencies(sampling).size(), 3u);
  sampling.top_p = 0.84;
  EXPECT_EQ(frequencies(sampling).size(), 2u);
}

TEST(Sample, MinPIsAShareOfTheLikeliest) {
  auto sampling = plain();
  sampling.min_p = 0.29;
  auto counts = frequencies(sampling);
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[2], 0.15 / 0.95, 0.015);
  sampling.min_p = 0.31;
  EXPECT_EQ(frequencies(sampling).size(), 2u);
  sampling.min_p = 1;
  EXPECT_EQ(frequencies(sampling).size(), 1u);
}

TEST(Sample, ThePenaltyCountsEveryTokenOnce) {
  auto sampling = plain();
  sampling.repetition_penalty = 2;  // scores are negative here: doubled, so probabilities are squared
  auto counts = frequencies(sampling, {0, 0, 0});
  const double total = 0.25 + 0.3 + 0.15 + 0.05;
  EXPECT_NEAR(counts[0], 0.25 / total, 0.015);
  EXPECT_NEAR(counts[1], 0.3 / total, 0.015);
  sampling.temperature = 0;
  EXPECT_EQ(frequencies(sampling, {0}).begin()->first, 1);
  EXPECT_EQ(frequencies(sampling).begin()->first, 0);
}

TEST(Sample, ThePenaltyLeavesTheLogitsAlone) {
  const auto logits = at::tensor({3.0f, 2.0f}).unsqueeze(0);
  const std::vector<int32_t> seen{0};
  SamplingConfig sampling;
  sampling.temperature = 0, sampling.repetition_penalty = 2;
  const SampleRow row{.sampling = &sampling, .seen = seen};
  EXPECT_EQ(sample(logits, {&row, 1})[0], 1);
  EXPECT_EQ(logits[0][0].item<float>(), 3.0f);
}

TEST(Sample, EachRowHasItsOwnSettingsAndVocabulary) {
  const auto logits = at::tensor({1.0f, 2.0f, 3.0f}).expand({3, 3});
  SamplingConfig greedy, narrow = plain();
  greedy.temperature = 0;
  narrow.top_k = 1;
  const std::vector<SampleRow> rows{
      {.sampling = &greedy}, {.sampling = &greedy, .vocab_size = 2}, {.sampling = &narrow, .vocab_size = 1}};
  EXPECT_EQ(sample(logits, rows), (std::vector<int32_t>{2, 1, 0}));
}

TEST(LogProbabilities, AreThoseOfThePlainSoftmax) {
  const auto logits = at::log(at::tensor({0.5f, 0.125f, 0.25f, 0.125f}));
  const auto told = log_probabilities(logits, 1, 0, 2);
  EXPECT_NEAR(told.chosen, std::log(0.125), 1e-6);
  ASSERT_EQ(told.likeliest.size(), 2u);
  EXPECT_EQ(told.likeliest[1].first, 2);
  EXPECT_NEAR(told.likeliest[1].second, std::log(0.25), 1e-6);
  EXPECT_NEAR(log_probabilities(logits, 0, 2, 9).chosen, std::log(0.8), 1e-6) << "among two ids alone";
  EXPECT_EQ(log_probabilities(logits, 0, 2, 9).likeliest.size(), 2u);
}

}  // namespace
}  // namespace tightloop
