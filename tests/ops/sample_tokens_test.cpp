#include "ops/decode/sample_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/round.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "ops/compare.h"
#include "ops/decode/sampling_math.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using Settings = ops::SampleSettings;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct One {
  double temperature = 1, top_p = 1, min_p = 0, penalty = 1;
  int64_t top_k = 0, seed = 0, position = 0, vocab_size = 0;
};

Settings settings_of(const std::vector<One>& rows) {
  const auto N = static_cast<int64_t>(rows.size());
  Settings made{.values = at::zeros({N, Settings::kValues}, at::kDouble),
                .numbers = at::zeros({N, Settings::kNumbers}, at::kLong)};
  for (int64_t i = 0; i < N; ++i) {
    const One& one = rows[static_cast<size_t>(i)];
    double* values = made.values.mutable_data_ptr<double>() + i * Settings::kValues;
    values[Settings::kTemperature] = one.temperature, values[Settings::kTopP] = one.top_p;
    values[Settings::kMinP] = one.min_p, values[Settings::kPenalty] = one.penalty;
    int64_t* numbers = made.numbers.mutable_data_ptr<int64_t>() + i * Settings::kNumbers;
    numbers[Settings::kTopK] = one.top_k, numbers[Settings::kSeed] = one.seed;
    numbers[Settings::kSample] = i, numbers[Settings::kPosition] = one.position;
    numbers[Settings::kVocabSize] = one.vocab_size, numbers[Settings::kSeenLine] = N - 1 - i;
  }
  return made;
}

Settings on(const Settings& settings, at::Device device) {
  return {settings.values.to(device), settings.numbers.to(device),
          settings.seen.defined() ? settings.seen.to(device, settings.seen.scalar_type(), false, true)
                                  : Tensor()};
}

/// Any settings, those at the ends of their range among them.
One any(Random& random, int64_t V) {
  const auto one_of = [&](std::initializer_list<double> values) {
    return values.begin()[random.below(values.size())];
  };
  return {.temperature = one_of({0, 0.01, 0.5, 1, 1, 3, 100}),
          .top_p = one_of({1, 1, 0, 0.3, 0.9, 0.999}),
          .min_p = one_of({0, 0, 0, 0.05, 0.5, 1}),
          .penalty = one_of({1, 1, 0, 1.3, 0.7}),
          .top_k = static_cast<int64_t>(one_of({0, 0, 1, 2, 50, 1.0 * static_cast<double>(V), 1e6, 4500})),
          .seed = static_cast<int64_t>(random.next()),
          .position = static_cast<int64_t>(random.below(3)),
          .vocab_size = static_cast<int64_t>(one_of({0, 0, 1, static_cast<double>(V / 2 + 1)}))};
}

void expect_the_same(const Tensor& logits, const Settings& settings, at::Device device) {
  const Settings here = on(settings, device), there = on(settings, at::kCPU);
  const auto fast = ops::sample_tokens(logits.to(device), here, true);
  const auto plain = ops::sample_tokens_plain(logits, there, true);
  EXPECT_TRUE(at::equal(fast.ids.cpu(), plain.ids))
      << fast.ids << plain.ids << settings.values << settings.numbers;
  EXPECT_TRUE(at::allclose(fast.logprobs.cpu(), plain.logprobs, 1e-5, 1e-5, true));
  if (settings.seen.defined()) {
    EXPECT_TRUE(at::equal(here.seen.cpu(), there.seen)) << "what was chosen is marked";
  }
}

class SampleTokensOn : public OnDevice {};
ON_EVERY_DEVICE(SampleTokensOn);

TEST_P(SampleTokensOn, ChoosesAsThePlainTwin) {
  Random random(1);
  for (const int64_t V : {1, 2, 7, 100, 4096, 4097, 9001})
    for (int round = 0; round < 4; ++round) {
      const int64_t N = (V > 100 ? 6 : 25) / (kFibers ? 2 : 1);
      SCOPED_TRACE(::testing::Message() << N << " x " << V << ", round " << round);
      Tensor logits = random_tensor({N, V}, at::kFloat, random.next(), round == 1 ? 20.0 : 3.0);
      if (round == 2) logits = at::round(logits);  // many are equal
      if (round == 3) {
        for (int i = 0; i < N * V / 3 + 1; ++i)
          logits.mutable_data_ptr<float>()[random.below(static_cast<uint64_t>(N * V))] =
              std::initializer_list<float>{-kInfinity, std::nanf(""), 0.0f, -0.0f}.begin()[random.below(4)];
      }
      std::vector<One> rows;
      for (int64_t i = 0; i < N; ++i) rows.push_back(any(random, V));
      Settings settings = settings_of(rows);
      settings.seen = random_tensor({N, V}, at::kFloat, random.next()) > 0.5;
      expect_the_same(logits, settings, device);
    }
}

TEST_P(SampleTokensOn, CutsWhereMoreTokensAreLikelyThanAreKeptAside) {
  const int64_t V = 9001;
  for (const auto& logits : {random_tensor({4, V}, at::kFloat, 1, 0.1), at::zeros({4, V})})
    expect_the_same(
        logits,
        settings_of({{.top_p = 0.9}, {.top_k = 5000}, {.top_p = 0.7, .top_k = 8000}, {.min_p = 0.99}}),
        device);
}

TEST_P(SampleTokensOn, TakesScoresIn16BitsAndViews) {
  const auto settings = settings_of({{}, {.temperature = 0}, {.top_p = 0.5}, {.top_k = 3}});
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    expect_the_same(random_tensor({4, 301}, dtype, 3), settings, device);
  const Tensor wide = random_tensor({4, 5001}, at::kFloat, 4);
  const Tensor part = wide.slice(1, 1, 4999);
  EXPECT_TRUE(at::equal(ops::sample_tokens(wide.to(device).slice(1, 1, 4999), on(settings, device)).ids.cpu(),
                        ops::sample_tokens_plain(part, settings).ids));
  expect_the_same(wide.t().slice(0, 0, 4).slice(1, 0, 4), settings, device);
}

TEST_P(SampleTokensOn, WhereNothingIsLikelyAllIsAlike) {
  const auto nothing = at::tensor({-kInfinity, std::nanf(""), -kInfinity, std::nanf("")}).expand({40, 4});
  std::vector<One> rows(40);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].seed = static_cast<int64_t>(i);
  rows[0].temperature = 0;
  const auto ids = ops::sample_tokens(nothing.to(device), on(settings_of(rows), device)).ids.cpu();
  EXPECT_EQ(ids[0].item<int64_t>(), 0);
  for (int64_t id = 0; id < 4; ++id) EXPECT_TRUE((ids == id).any().item<bool>()) << id;
  // One that is certain.
  const auto certain = at::tensor({1.0f, kInfinity, 2.0f}).expand({40, 3});
  EXPECT_TRUE(
      (ops::sample_tokens(certain.to(device), on(settings_of(rows), device)).ids == 1).all().item<bool>());
}

TEST_P(SampleTokensOn, ARowOfZerosIsGreedy) {
  const auto logits = random_tensor({3, 50}, at::kFloat, 5);
  const Settings zeros{at::zeros({3, Settings::kValues}, at::kDouble),
                       at::zeros({3, Settings::kNumbers}, at::kLong)};
  const auto made = ops::sample_tokens(logits.to(device), on(zeros, device), true);
  EXPECT_TRUE(at::equal(made.ids.cpu(), logits.argmax(1)));
  const auto all = at::log_softmax(logits, 1).gather(1, logits.argmax(1, true)).squeeze(1);
  EXPECT_LE(relative_error(made.logprobs, all), 1e-5);
}

TEST_P(SampleTokensOn, ARowDoesNotDependOnItsNeighbours) {
  Random random(2);
  std::vector<One> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(any(random, 300));
  const auto logits = random_tensor({8, 300}, at::kFloat, 6);
  Settings settings = settings_of(rows);
  settings.values.select(1, Settings::kPenalty).fill_(1);
  const auto together = ops::sample_tokens(logits.to(device), on(settings, device)).ids.cpu();
  for (int64_t i = 0; i < 8; ++i) {
    const Settings alone{settings.values.slice(0, i, i + 1), settings.numbers.slice(0, i, i + 1)};
    EXPECT_EQ(ops::sample_tokens(logits.slice(0, i, i + 1).to(device), on(alone, device)).ids.item<int64_t>(),
              together[i].item<int64_t>());
  }
}

TEST_P(SampleTokensOn, TakesNoRows) {
  const auto made = ops::sample_tokens(at::zeros({0, 5}).to(device), on(settings_of({}), device), true);
  EXPECT_EQ(made.ids.size(0), 0);
  EXPECT_EQ(made.logprobs.size(0), 0);
}

TEST(SampleTokens, WeightsAreThoseOfTheExponential) {
  const double one = static_cast<double>(ops::sampling::kOne);
  for (const double temperature : {0.3, 1.0, 2.5})
    for (float below = 0; below > -20; below -= 0.00173f) {
      const auto weight =
          ops::sampling::weight_of(5 + below, 5, ops::sampling::exponents_per_score(temperature));
      const double right = std::exp(static_cast<double>(5 + below - 5.0f) / temperature);
      ASSERT_NEAR(static_cast<double>(weight) / one, right, right * 5e-6 + 1 / one) << below;
    }
  EXPECT_EQ(ops::sampling::weight_of(-100, 0, ops::sampling::exponents_per_score(1)), 0u);
  EXPECT_EQ(ops::sampling::weight_of(-1, 0, ops::sampling::exponents_per_score(1e-300)), 0u);
  EXPECT_EQ(ops::sampling::weight_of(-1, 0, ops::sampling::exponents_per_score(1e300)), ops::sampling::kOne);
}

TEST(SampleTokens, RanksAreOrderedAsScoresAre) {
  const std::vector<float> scores{-kInfinity, -3e38f, -1, -1e-40f, 0, 1e-40f, 1, 3e38f, kInfinity};
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto rank = ops::sampling::rank_of(scores[i], 17);
    EXPECT_EQ(ops::sampling::score_of(rank), scores[i]);
    EXPECT_EQ(ops::sampling::id_of(rank), 17);
    EXPECT_GT(rank, 0u);
    if (i > 0) {
      EXPECT_GT(rank, ops::sampling::rank_of(scores[i - 1], 3));
    }
  }
  EXPECT_GT(ops::sampling::rank_of(-0.0f, 3), ops::sampling::rank_of(0.0f, 4));
}

TEST(SampleTokens, SettingsOfAnotherShapeAreRefused) {
  const auto settings = settings_of({{}, {}});
  EXPECT_THROW(ops::sample_tokens(at::zeros({3, 4}), settings), c10::Error);
  EXPECT_THROW(ops::sample_tokens(at::zeros({2, 0}), settings), c10::Error);
  Settings seen = settings;
  seen.seen = at::zeros({2, 5}, at::kBool);
  EXPECT_THROW(ops::sample_tokens(at::zeros({2, 4}), seen), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
