#include "model/families/seq2seq/seq2seq.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "core/device.h"
#include "model/model_size.h"
#include "ops/compare.h"
#include "ops/config.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::relative_error;

ModelConfig tiny(NormPlacement norm_place = NormPlacement::kPre,
                 PositionEncoding positions = PositionEncoding::kSinusoidal) {
  ModelConfig config;
  config.family = "seq2seq";
  config.layers = 2, config.encoder_layers = 3, config.width = 16, config.heads = 2;
  config.norm_place = norm_place, config.positions = positions;
  config.vocab_size = 24;
  config.resolve(0, 0);
  return config;
}

struct Pairs {
  at::Tensor source = at::randint(3, 24, {3, 7}, at::kLong), target = at::randint(3, 24, {3, 5}, at::kLong);
  at::Tensor lengths = at::tensor({7, 4, 1}, at::kLong);
};

class Seq2SeqKinds : public ::testing::TestWithParam<std::pair<NormPlacement, PositionEncoding>> {
 protected:
  Seq2Seq model_{tiny(GetParam().first, GetParam().second), 3};
  Pairs pairs_;
  at::Tensor run() { return model_.decode(pairs_.target, model_.encode(pairs_.source, pairs_.lengths)); }
};

TEST_P(Seq2SeqKinds, WhatStandsInPaddingDoesNotMatter) {
  c10::NoGradGuard no_grad;
  const auto before = run();
  pairs_.source[1].slice(0, 4) = 5, pairs_.source[2].slice(0, 1) = 9;
  EXPECT_LT(relative_error(run(), before), 1e-6);
  // More of it does not either.
  const auto wide = at::cat({pairs_.source, at::full({3, 9}, 4, at::kLong)}, 1);
  EXPECT_LT(relative_error(model_.decode(pairs_.target, model_.encode(wide, pairs_.lengths)), before), 1e-5);
  // But a token does.
  pairs_.source[0][6] = pairs_.source[0][6].item<int64_t>() == 5 ? 6 : 5;
  EXPECT_GT(relative_error(run()[0], before[0]), 1e-4);
  EXPECT_LT(relative_error(run()[1], before[1]), 1e-6);
}

TEST_P(Seq2SeqKinds, TargetsDoNotSeeWhatFollows) {
  c10::NoGradGuard no_grad;
  const auto before = run();
  pairs_.target.slice(1, 3) = 7;
  const auto after = run();
  EXPECT_LT(relative_error(after.slice(1, 0, 3), before.slice(1, 0, 3)), 1e-6);
  EXPECT_GT(relative_error(after, before), 1e-4);
}

// Token by token, two targets of each source; after the third one, each goes on from where the other was.
TEST_P(Seq2SeqKinds, PagesGiveWhatTheWholeGives) {
  c10::NoGradGuard no_grad;
  constexpr int64_t kRows = 6, kTokens = 5;
  auto targets = at::randint(3, 24, {kRows, kTokens}, at::kLong);
  const auto swapped = at::tensor({1, 0, 3, 2, 5, 4}, at::kLong);
  auto memory = model_.encode(pairs_.source, pairs_.lengths);
  model_.remember(memory);
  KvPages pages(model_.config().layers, kRows, /*page=*/1);
  auto tables = at::zeros({kRows, kTokens}, at::kInt);
  const auto rows = at::arange(kRows, at::kInt);
  std::vector<at::Tensor> steps;
  for (int64_t t = 0; t < kTokens; ++t) {
    if (t == 3) {
      tables = tables.index_select(0, swapped);
      targets.narrow(1, 0, 3).copy_(targets.narrow(1, 0, 3).index_select(0, swapped));
      for (auto& step : steps) step = step.index_select(0, swapped);
    }
    pages.reserve((t + 1) * kRows);
    tables.select(1, t).copy_(rows + t * kRows);
    const auto positions = at::full({kRows}, t, at::kInt);
    const PagedTokens paged{.pages = pages,
                            .positions_N = positions,
                            .rows_N = rows,
                            .tables = tables,
                            .longest = kTokens,
                            .apart = true};
    steps.push_back(model_.decode(targets.slice(1, t, t + 1), memory, {.paged = &paged}));
  }
  EXPECT_LT(relative_error(at::cat(steps, 1), model_.decode(targets, memory)), 1e-5);
}

TEST_P(Seq2SeqKinds, SeveralTargetsOfASourceShareItsMemory) {
  c10::NoGradGuard no_grad;
  const auto memory = model_.encode(pairs_.source, pairs_.lengths);
  const auto targets = at::randint(3, 24, {12, 5}, at::kLong);  // four of each source
  const auto together = model_.decode(targets, memory);
  auto repeated = model_.encode(pairs_.source, pairs_.lengths);
  repeated.select_rows(at::arange(12, at::kLong).floor_divide(4));
  EXPECT_LT(relative_error(together, model_.decode(targets, repeated)), 1e-5);
}

TEST_P(Seq2SeqKinds, ThePlainTwinAgreesInValuesAndGradients) {
  const auto readout = at::randn({3, 5, 16});  // a norm's squares sum to a constant: they would not do
  const auto gradients = [&] {
    for (const auto& parameter : model_.parameters().all()) parameter.value.mutable_grad().reset();
    const auto hidden = run();
    (hidden * readout).sum().backward();
    std::vector<at::Tensor> all{hidden.detach()};
    for (const auto& parameter : model_.parameters().all()) {
      EXPECT_TRUE(parameter.value.grad().defined() || parameter.name == "head") << parameter.name;
      if (parameter.value.grad().defined()) all.push_back(parameter.value.grad().clone());
    }
    return all;
  };
  const auto fast = gradients();
  ops::use_plain(true);
  const auto plain = gradients();
  ops::use_plain(false);
  ASSERT_EQ(fast.size(), plain.size());
  for (size_t i = 0; i < fast.size(); ++i) EXPECT_LT(relative_error(fast[i], plain[i]), 1e-4) << i;
}

TEST_P(Seq2SeqKinds, RowsWithoutATokenGiveNoNaN) {
  const auto empty = at::tensor({7, 0, 1}, at::kLong);
  const auto hidden = model_.decode(pairs_.target, model_.encode(pairs_.source, empty));
  EXPECT_TRUE(hidden.isfinite().all().item<bool>());
  hidden.sum().backward();
  for (const auto& parameter : model_.parameters().all())
    EXPECT_TRUE(parameter.value.grad().isfinite().all().item<bool>()) << parameter.name;
}

INSTANTIATE_TEST_SUITE_P(All, Seq2SeqKinds,
                         ::testing::Values(std::pair(NormPlacement::kPre, PositionEncoding::kSinusoidal),
                                           std::pair(NormPlacement::kPost, PositionEncoding::kSinusoidal),
                                           std::pair(NormPlacement::kPre, PositionEncoding::kRotary),
                                           std::pair(NormPlacement::kPost, PositionEncoding::kRotary)),
                         [](const auto& kind) {
                           return fmt::format("{}_{}", name_of(kind.param.first), name_of(kind.param.second));
                         });

TEST(Seq2Seq, DropoutFollowsFromItsNumber) {
  c10::NoGradGuard no_grad;
  auto config = tiny();
  config.dropout = 0.2;
  Seq2Seq model(config, 3);
  const Pairs pairs;
  const auto run = [&](bool training, int64_t number) {
    const Pass pass{.training = training, .random = at::scalar_tensor(number, at::kLong)};
    return model.decode(pairs.target, model.encode(pairs.source, pairs.lengths, pass), pass);
  };
  EXPECT_TRUE(at::equal(run(true, 1), run(true, 1)));
  EXPECT_GT(relative_error(run(true, 1), run(true, 2)), 1e-2);
  EXPECT_GT(relative_error(run(true, 1), run(false, 1)), 1e-2);
  EXPECT_TRUE(at::equal(run(false, 1), run(false, 2)));
}

TEST(Seq2Seq, PresetsHaveThePapersSizes) {
  for (const auto& [preset, vocabulary, total] :
       {std::tuple("translate-base", 37000, 63'084'544), std::tuple("translate-tiny", 8000, 7'578'624)}) {
    ModelConfig config;
    Config settings;
    settings.add_section("model", config, "");
    settings.set("model.preset", preset);
    config.vocab_size = vocabulary;
    config.resolve(0, 0);
    EXPECT_EQ(model_size(config).total, total) << preset;
    if (config.width < 512) {
      EXPECT_EQ(Seq2Seq(config, 1).parameters().count(), total);
    }
  }
  // The count is right for the other kinds too.
  auto config = tiny(NormPlacement::kPost);
  config.share_embeddings = config.tie_embeddings = false;
  config.source_vocab_size = 31;
  EXPECT_EQ(Seq2Seq(config, 1).parameters().count(), model_size(config).total);
}

TEST(Seq2Seq, BadSizesAreRefused) {
  const auto refused = [](auto change) {
    auto config = tiny();
    config.vocab_size = config.source_vocab_size = 0;
    change(config);
    return testing::error_of(ExitCode::kUsage, [&] { config.resolve_pair(100, 120, 64); });
  };
  EXPECT_NE(refused([](ModelConfig&) {}).find("share_embeddings"), std::string::npos);
  EXPECT_NE(refused([](ModelConfig& config) {
              config.share_embeddings = false, config.source_vocab_size = 64;
            }).find("source_vocab_size"),
            std::string::npos);
  ModelConfig config = tiny();
  testing::error_of(ExitCode::kUsage, [&] { make_model(config, 1); });
}

TEST(Seq2Seq, TheGpuAgrees) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  const at::Device gpu(device("cuda").name());
  for (const auto& kind : {std::pair(NormPlacement::kPre, PositionEncoding::kSinusoidal),
                           std::pair(NormPlacement::kPost, PositionEncoding::kRotary)}) {
    Seq2Seq model(tiny(kind.first, kind.second), 3);
    const Pairs pairs;
    const auto run = [&](at::Device device) {
      return model.decode(pairs.target.to(device),
                          model.encode(pairs.source.to(device), pairs.lengths.to(device)));
    };
    const auto expected = run(at::kCPU).detach();
    model.parameters().to(gpu, at::kFloat);
    const auto hidden = run(gpu);
    EXPECT_LT(relative_error(hidden.detach().cpu(), expected), 1e-3);
    hidden.sum().backward();
    model.parameters().to(gpu, at::kBFloat16);
    EXPECT_LT(relative_error(run(gpu).detach().cpu().to(at::kFloat), expected), 0.1);
  }
}

}  // namespace
}  // namespace tightloop
