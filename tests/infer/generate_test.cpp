#include "infer/generate.h"

#include "infer/model.h"
#include "infer/slow_greedy.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::slow_greedy;
using testing::small_model;

GenerateOptions greedy(int64_t tokens, std::vector<int32_t> stops = {}) {
  GenerateOptions options;
  options.sampling.temperature = 0, options.sampling.max_tokens = tokens;
  options.stop_tokens = std::move(stops);
  return options;
}

GenerateOptions random(int64_t tokens) {
  auto options = greedy(tokens);
  options.sampling.temperature = 1;
  return options;
}

const std::vector<Prompt> kRagged{{{1, 2, 3}}, {{4}}, {{5, 6, 7, 8, 9, 10, 11}}, {{3, 2}}, {{9, 9, 9}}};

TEST(Generate, RaggedGreedyEqualsTheSlowWay) {
  const auto model = small_model();
  const auto answers = generate(*model, kRagged, greedy(20));
  for (size_t row = 0; row < kRagged.size(); ++row) {
    EXPECT_EQ(answers[row].ids, slow_greedy(*model, kRagged[row].ids, -1, 20)) << row;
    EXPECT_EQ(answers[row].end, AnswerEnd::kLength);
  }
}

TEST(Generate, ALongPromptIsReadInPartsAndOneFarTooLongIsRefused) {
  const auto model = small_model();
  Prompt prompt;
  for (int32_t i = 0; i < 2100; ++i) prompt.ids.push_back(i * 7 % 11 + 1);
  EXPECT_EQ(generate(*model, {&prompt, 1}, greedy(2))[0].ids, slow_greedy(*model, prompt.ids, -1, 2));
  prompt.ids.resize(static_cast<size_t>(longest_prompt(model->config())) + 1, 1);
  const auto message = testing::error_of(ExitCode::kUsage, [&] {
    generate(*model, {&prompt, 1}, greedy(2));
  });
  EXPECT_NE(message.find("too long"), std::string::npos) << message;
}

TEST(Generate, StopsRowByRowAndTheOthersGoOn) {
  const auto model = small_model();
  const auto free = generate(*model, kRagged, greedy(12));
  const int32_t stop = free[0].ids[3];
  const auto stopped = generate(*model, kRagged, greedy(12, {stop}));
  size_t ended = 0;
  for (size_t row = 0; row < kRagged.size(); ++row) {
    EXPECT_EQ(stopped[row].ids, slow_greedy(*model, kRagged[row].ids, stop, 12)) << row;
    ended += stopped[row].end == AnswerEnd::kStopped;
  }
  EXPECT_GE(ended, 1u);
}

TEST(Generate, TheCallbackSeesEveryTokenAndMayEndARow) {
  const auto model = small_model();
  std::vector<std::vector<int32_t>> seen(kRagged.size());
  auto options = greedy(8);
  options.on_token = [&](size_t row, int32_t id) {
    seen[row].push_back(id);
    return row != 1 || seen[row].size() < 3;
  };
  const auto answers = generate(*model, kRagged, options);
  for (size_t row = 0; row < kRagged.size(); ++row) {
    EXPECT_EQ(seen[row], answers[row].ids);
    EXPECT_EQ(seen[row], slow_greedy(*model, kRagged[row].ids, -1, row == 1 ? 3 : 8));
  }
  EXPECT_EQ(answers[1].end, AnswerEnd::kStopped);
}

TEST(Generate, TheSeedDecidesWhateverTheBatch) {
  const auto model = small_model();
  const auto alone = generate(*model, std::vector<Prompt>{kRagged[2]}, random(25));
  EXPECT_EQ(generate(*model, kRagged, random(25))[2].ids, alone[0].ids);
  EXPECT_EQ(generate(*model, kRagged, random(25), 2)[2].ids, alone[0].ids);
  auto other = random(25);
  other.sampling.seed = 2;
  EXPECT_NE(generate(*model, std::vector<Prompt>{kRagged[2]}, other)[0].ids, alone[0].ids);
}

TEST(Generate, SamplesOfOnePromptDiffer) {
  const auto model = small_model();
  const std::vector<Prompt> prompts{{{1, 2}, 0}, {{1, 2}, 1}, {{1, 2}, 0}};
  const auto answers = generate(*model, prompts, random(25));
  EXPECT_NE(answers[0].ids, answers[1].ids);
  EXPECT_EQ(answers[0].ids, answers[2].ids);
}

TEST(Generate, KeepsTheOrderAndTellsProgress) {
  const auto model = small_model();
  std::vector<size_t> told;
  std::vector<size_t> rows;
  auto options = greedy(1);
  options.on_token = [&](size_t row, int32_t) { return rows.push_back(row), true; };
  const auto answers = generate(*model, kRagged, options, 2, [&](size_t done) { told.push_back(done); });
  for (size_t row = 0; row < kRagged.size(); ++row)
    EXPECT_EQ(answers[row].ids, slow_greedy(*model, kRagged[row].ids, -1, 1));
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), kRagged.size());
  EXPECT_GE(told.size(), 3u) << "two at once";
  std::ranges::sort(rows);
  EXPECT_EQ(rows, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(Generate, ADecoderThatGoesOnDoesNotReadAgainWhatItHasRead) {
  const auto model = small_model();
  Decoder decoder(*model);
  std::vector<Prompt> prompts{{{}}};
  for (int32_t i = 0; i < 40; ++i) prompts[0].ids.push_back(i * 7 % 39);
  const auto first = generate(decoder, prompts, greedy(6))[0];
  EXPECT_EQ(first.shared_tokens, 0);
  prompts[0].ids.insert(prompts[0].ids.end(), first.ids.begin(), first.ids.begin() + 2);
  prompts[0].ids.insert(prompts[0].ids.end(), {7, 8, 9});
  const auto second = generate(decoder, prompts, greedy(6))[0];
  EXPECT_EQ(second.ids, slow_greedy(*model, prompts[0].ids, -1, 6));
  EXPECT_EQ(second.shared_tokens, 32);
}

TEST(Generate, WhatACallbackThrowsComesOutAndTheDecoderGoesOn) {
  const auto model = small_model();
  Decoder decoder(*model);
  auto options = greedy(20);
  options.on_token = [](size_t row, int32_t) { return row != 2 ? true : throw std::runtime_error("no"); };
  EXPECT_THROW(generate(decoder, kRagged, options), std::runtime_error);
  EXPECT_EQ(decoder.load().running + decoder.load().waiting, 0);
  EXPECT_EQ(generate(decoder, kRagged, greedy(3))[2].ids, slow_greedy(*model, kRagged[2].ids, -1, 3));
}

TEST(Generate, ManyTokensTakeNoMoreRoomThanTheyNeed) {
  ModelConfig config;
  config.resolve(40, 0);
  const auto tokens = [&](int64_t max_tokens, size_t rows) {
    return decoder_for(config, kRagged, max_tokens, rows).cache_tokens;
  };
  EXPECT_EQ(tokens(20, 1), 32);
  EXPECT_EQ(tokens(20, 0), 5 * 32);
  EXPECT_EQ(tokens(int64_t{1} << 40, 1), (1 << 20) + 16);
  EXPECT_EQ(tokens(100000, 64), 1 << 17);
  EXPECT_EQ(decoder_for(config, kRagged, 20, 64).running, 5);
}

TEST(Generate, BadPromptsAreRefused) {
  const auto model = small_model();
  const auto fail = [&](std::vector<int32_t> ids) {
    const std::vector<Prompt> prompts{{std::move(ids)}};
    return error_of(ExitCode::kUsage, [&] { generate(*model, prompts, greedy(5)); });
  };
  EXPECT_NE(fail({}).find("at least one token"), std::string::npos);
  EXPECT_NE(fail({1, 64}).find("no token 64"), std::string::npos);
  EXPECT_NE(fail({-1}).find("no token -1"), std::string::npos);
  EXPECT_TRUE(generate(*model, {}, greedy(5)).empty());
}

TEST(Generate, LearnedPositionsLimitTheLength) {
  ModelConfig config;
  config.context = 32;
  EXPECT_GT(longest_sequence(config), 1 << 30);
  config.family = "gpt2";
  EXPECT_EQ(longest_sequence(config), 32);
}

}  // namespace
}  // namespace tightloop
