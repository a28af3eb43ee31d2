#include "infer/beam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/device.h"
#include "core/random.h"
#include "support.h"

namespace tightloop {
namespace {

constexpr int32_t kBeamPad = 0, kBegin = 1, kEnd = 2;
using Ids = std::vector<int32_t>;

std::unique_ptr<Seq2Seq> random_model(uint64_t seed, int64_t vocab_size) {
  ModelConfig config;
  config.family = "seq2seq";
  config.layers = 1, config.width = 16, config.heads = 2, config.vocab_size = vocab_size;
  config.norm_place = seed % 2 ? NormPlacement::kPre : NormPlacement::kPost;
  config.positions = seed % 3 ? PositionEncoding::kSinusoidal : PositionEncoding::kRotary;
  config.resolve(0, 0);
  auto model = std::make_unique<Seq2Seq>(config, seed);
  c10::NoGradGuard no_grad;
  model->parameters().find("embedding")->value.detach().mul_(1.5);  // stronger opinions
  return model;
}

TargetTokens tokens() { return {.begin = kBegin, .end = kEnd, .never = {kBeamPad}}; }

Ids random_source(Random& random, int64_t vocab_size, uint64_t longest) {
  Ids ids{kBegin};
  for (uint64_t n = 1 + random.below(longest); n > 0; --n)
    ids.push_back(static_cast<int32_t>(3 + random.below(static_cast<uint64_t>(vocab_size) - 3)));
  ids.push_back(kEnd);
  return ids;
}

/// Log probabilities of what follows `ids`, everything computed anew.
std::vector<double> next_token(Seq2Seq& model, const Ids& source, const Ids& ids) {
  c10::NoGradGuard no_grad;
  const auto row = [](const Ids& list) {
    return at::tensor(std::vector<int64_t>(list.begin(), list.end()), at::kLong).unsqueeze(0);
  };
  Ids whole{kBegin};
  whole.insert(whole.end(), ids.begin(), ids.end());
  const auto lengths = at::tensor({static_cast<int64_t>(source.size())}, at::kLong);
  const auto hidden = model.decode(row(whole), model.encode(row(source), lengths));
  const auto log_p = at::log_softmax(model.logits(hidden)[0][-1].to(at::kDouble), -1);
  return {log_p.const_data_ptr<double>(), log_p.const_data_ptr<double>() + log_p.numel()};
}

/// Beam search as one would write it down.
std::vector<Translation> slow_search(Seq2Seq& model, const Ids& source, const DecodeConfig& config) {
  struct Candidate {
    Ids ids;
    double sum;
    int32_t token;
  };
  std::vector<Translation> live{{}}, ended;
  const auto beam = static_cast<size_t>(config.beam);
  const auto limit = static_cast<int64_t>(source.size()) + config.extra_tokens;
  const auto is_done = [&](int64_t t) {
    if (live.empty()) return true;
    if (ended.size() < beam) return false;
    return live[0].log_probability / length_divisor(t + 1, config.length_penalty) <= ended.back().score;
  };
  for (int64_t t = 0; t < limit && !is_done(t); ++t) {
    std::vector<Candidate> candidates;
    for (const auto& one : live) {
      const auto log_p = next_token(model, source, one.ids);
      for (int32_t token = 0; token < std::ssize(log_p); ++token) {
        if (token == kBeamPad || token == kBegin || (t + 1 == limit && token != kEnd)) continue;
        candidates.push_back({one.ids, one.log_probability + log_p[static_cast<size_t>(token)], token});
      }
    }
    std::ranges::stable_sort(candidates, std::ranges::greater{}, &Candidate::sum);
    candidates.resize(std::min(candidates.size(), 2 * beam));
    live.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      auto& [ids, sum, token] = candidates[i];
      if (token == kEnd && i < beam) {
        ended.push_back({ids, sum / length_divisor(t + 1, config.length_penalty), sum});
      } else if (token != kEnd && live.size() < beam) {
        ids.push_back(token);
        live.push_back({ids, 0, sum});
      }
    }
    std::ranges::stable_sort(ended, std::ranges::greater{}, &Translation::score);
    ended.resize(std::min(ended.size(), beam));
  }
  ended.resize(std::min(ended.size(), static_cast<size_t>(config.nbest)));
  return ended;
}

void expect_same(const std::vector<Translation>& found, const std::vector<Translation>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids) << "translation " << i;
    EXPECT_NEAR(found[i].score, expected[i].score, 1e-4);
    EXPECT_NEAR(found[i].log_probability, expected[i].log_probability, 1e-4);
  }
}

TEST(Beam, EqualsASlowSearchOnManyModels) {
  Random random(11);
  size_t translations = 0, words = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto vocab_size = static_cast<int64_t>(6 + random.below(10));
    const auto model = random_model(seed, vocab_size);
    DecodeConfig config;
    config.beam = static_cast<int64_t>(1 + random.below(5));
    config.nbest = static_cast<int64_t>(1 + random.below(static_cast<uint64_t>(config.beam)));
    config.length_penalty = 0.3 * static_cast<double>(random.below(5));
    config.extra_tokens = static_cast<int64_t>(random.below(5)) + 1;
    std::vector<Ids> sources;
    for (uint64_t n = 1 + random.below(3); n > 0; --n)
      sources.push_back(random_source(random, vocab_size, 5));
    const auto found = decode_batch(*model, sources, tokens(), config);
    for (size_t i = 0; i < sources.size(); ++i) {
      SCOPED_TRACE(fmt::format("model {}, source {}, beam {}", seed, i, config.beam));
      const auto expected = slow_search(*model, sources[i], config);
      expect_same(found[i], expected);
      for (const auto& one : expected) ++translations, words += one.ids.size();
    }
  }
  EXPECT_GT(words, 2 * translations) << "the models end at once: nothing was searched";
}

TEST(Beam, EqualsAnExhaustiveSearchWhereTheBeamHoldsAll) {
  Random random(3);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const int64_t vocab_size = 5;  // two words
    const auto model = random_model(seed, vocab_size);
    const Ids source = random_source(random, vocab_size, 1);
    DecodeConfig config;
    config.extra_tokens = 2, config.length_penalty = 0.6 * static_cast<double>(seed % 3);
    const size_t limit = source.size() + 2;
    std::vector<Translation> all;
    const std::function<void(Ids, double)> follow = [&](Ids ids, double sum) {
      const auto log_p = next_token(*model, source, ids);
      const double ended = sum + log_p[kEnd];
      all.push_back({ids, ended / length_divisor(std::ssize(ids) + 1, config.length_penalty), ended});
      if (ids.size() + 1 == limit) return;
      for (const int32_t word : {3, 4}) {
        auto longer = ids;
        longer.push_back(word);
        follow(longer, sum + log_p[static_cast<size_t>(word)]);
      }
    };
    follow({}, 0);
    std::ranges::sort(all, std::ranges::greater{}, &Translation::score);
    ASSERT_EQ(all.size(), 31u);
    config.beam = 64, config.nbest = 64;
    expect_same(decode_batch(*model, std::vector<Ids>{source}, tokens(), config)[0], all);
  }
}

TEST(Beam, OneIsGreedy) {
  Random random(5);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto model = random_model(seed, 12);
    const Ids source = random_source(random, 12, 6);
    DecodeConfig config;
    config.beam = 1, config.extra_tokens = 6;
    Ids expected;
    while (expected.size() + 1 < source.size() + 6) {
      auto log_p = next_token(*model, source, expected);
      log_p[kBeamPad] = log_p[kBegin] = -INFINITY;
      const auto best = static_cast<int32_t>(std::ranges::max_element(log_p) - log_p.begin());
      if (best == kEnd) break;
      expected.push_back(best);
    }
    EXPECT_EQ(decode_batch(*model, std::vector<Ids>{source}, tokens(), config)[0][0].ids, expected) << seed;
  }
}

// What ends early is often junk, such as the empty translation: better ones that are still followed must not
// be given up for it.
TEST(Beam, JunkThatEndsEarlyDoesNotEndTheSearch) {
  Random random(6);
  int worse = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto model = random_model(seed, 12);
    model->parameters().find("embedding")->value.detach().mul_(2);
    const std::vector<Ids> source{random_source(random, 12, 6)};
    DecodeConfig config;
    config.extra_tokens = 6, config.beam = 1;
    const double greedy = decode_batch(*model, source, tokens(), config)[0][0].score;
    config.beam = 4;
    worse += decode_batch(*model, source, tokens(), config)[0][0].score < greedy - 1e-4;
  }
  EXPECT_EQ(worse, 0) << "of 100 models' translations than the greedy ones";
}

TEST(Beam, WhatElseIsInTheBatchChangesNothing) {
  Random random(7);
  const auto model = random_model(4, 14);
  std::vector<Ids> sources{{kBegin, kEnd}};
  for (int i = 0; i < 24; ++i) sources.push_back(random_source(random, 14, i % 3 ? 4 : 30));
  for (const bool sample : {false, true}) {
    DecodeConfig config;
    config.beam = 4, config.nbest = 3, config.sample = sample, config.extra_tokens = 12;
    const auto together = decode_all(*model, sources, tokens(), config, /*batch_tokens=*/1 << 20);
    size_t told = 0;
    const auto apart = decode_all(*model, sources, tokens(), config, /*batch_tokens=*/1, 0,
                                  [&](size_t done) { told = done; });
    EXPECT_EQ(told, sources.size());
    ASSERT_EQ(together.size(), sources.size());
    EXPECT_EQ(together[0].size(), 1u);
    EXPECT_TRUE(together[0][0].ids.empty());
    for (size_t i = 0; i < sources.size(); ++i) {
      SCOPED_TRACE(fmt::format("source {}, sample {}", i, sample));
      expect_same(together[i], apart[i]);
    }
  }
}

TEST(Beam, TokensThatMayNotBeChosenAreNot) {
  Random random(2);
  const auto model = random_model(9, 16);
  TargetTokens few = tokens();
  few.never.push_back(5);
  few.vocab_size = 10;
  std::vector<Ids> sources;
  for (int i = 0; i < 10; ++i) sources.push_back(random_source(random, 16, 8));
  for (const bool sample : {false, true}) {
    DecodeConfig config;
    config.sample = sample, config.nbest = 5;
    for (const auto& found : decode_batch(*model, sources, few, config)) {
      ASSERT_EQ(found.size(), 5u);
      for (const auto& one : found)
        for (const int32_t id : one.ids) EXPECT_TRUE(id > kEnd && id < 10 && id != 5) << id;
    }
  }
}

TEST(Beam, SamplesFollowTheModelsProbabilities) {
  const auto model = random_model(21, 8);
  const Ids source{kBegin, 3, 4, kEnd};
  DecodeConfig config;
  config.sample = true, config.nbest = 4000, config.extra_tokens = 1;
  auto log_p = next_token(*model, source, {});
  log_p[kBeamPad] = log_p[kBegin] = -INFINITY;
  const auto shares = [&] {
    std::map<int32_t, double> counts;
    const auto found = decode_batch(*model, std::vector<Ids>{source}, tokens(), config)[0];
    EXPECT_EQ(found.size(), 4000u);
    for (const auto& one : found) counts[one.ids.empty() ? kEnd : one.ids[0]] += 1.0 / 4000;
    return counts;
  };
  const auto expect = [&](double temperature, const std::vector<bool>& kept) {
    double total = 0;
    for (size_t id = 0; id < log_p.size(); ++id)
      if (kept[id]) total += std::exp(log_p[id] / temperature);
    auto found = shares();
    for (size_t id = 0; id < log_p.size(); ++id)
      EXPECT_NEAR(found[static_cast<int32_t>(id)], kept[id] ? std::exp(log_p[id] / temperature) / total : 0,
                  0.03)
          << id << " at " << temperature;
  };
  expect(1, std::vector<bool>(8, true));
  config.temperature = 0.5;
  expect(0.5, std::vector<bool>(8, true));
  config.temperature = 1, config.top_k = 2;
  std::vector<size_t> order(8);
  for (size_t id = 0; id < 8; ++id) order[id] = id;
  std::ranges::sort(order, std::ranges::greater{}, [&](size_t id) { return log_p[id]; });
  std::vector<bool> two(8, false);
  two[order[0]] = two[order[1]] = true;
  expect(1, two);
  // The two likeliest make up a little more than this.
  config.top_k = 0;
  double all = 0;
  for (const double one : log_p) all += std::exp(one);
  config.top_p = (std::exp(log_p[order[0]]) + 0.5 * std::exp(log_p[order[1]])) / all;
  expect(1, two);
  config.top_p = 0;
  two[order[1]] = false;
  expect(1, two);
  config.top_p = 1, config.seed = 1;
  const auto one = decode_batch(*model, std::vector<Ids>{source}, tokens(), config)[0];
  config.seed = 2;
  const auto other = decode_batch(*model, std::vector<Ids>{source}, tokens(), config)[0];
  size_t same = 0;
  for (size_t i = 0; i < one.size(); ++i) same += one[i].ids == other[i].ids;
  EXPECT_LT(same, one.size());
}

TEST(Beam, TheGpuFindsWhatTheCpuFinds) {
  if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  Random random(13);
  const auto model = random_model(6, 20);
  std::vector<Ids> sources;
  for (int i = 0; i < 16; ++i) sources.push_back(random_source(random, 20, 20));
  DecodeConfig config;
  config.nbest = 1;
  const auto expected = decode_batch(*model, sources, tokens(), config);
  model->parameters().to(at::Device(device("cuda").name()), at::kFloat);
  const auto found = decode_batch(*model, sources, tokens(), config);
  const auto same_as = [&](const std::vector<std::vector<Translation>>& others) {
    size_t same = 0;
    for (size_t i = 0; i < sources.size(); ++i) same += found[i][0].ids == others[i][0].ids;
    return same;
  };
  EXPECT_GE(same_as(expected), 15u) << "of 16";
  config.graphs = false;  // batches then shrink at other steps, and products round otherwise
  EXPECT_GE(same_as(decode_batch(*model, sources, tokens(), config)), 15u) << "of 16";
}

}  // namespace
}  // namespace tightloop
