#include "infer/decoder.h"

#include <map>
#include <thread>

#include "infer/model.h"
#include "infer/slow_greedy.h"
#include "infer/told.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::greedy;
using testing::slow_greedy;
using testing::small_model;
using testing::submit;
using testing::Told;

const std::vector<std::vector<int32_t>> kPrompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11}, {3, 2}, {9, 9, 9}};

TEST(Decoder, RequestsJoinAndLeaveBetweenPasses) {
  const auto model = small_model();
  Decoder decoder(*model, {.running = 3});
  std::vector<Told> told(kPrompts.size());
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    submit(decoder, greedy(kPrompts[i], 3 + static_cast<int64_t>(4 * i)), told[i]);
    decoder.advance();
    EXPECT_LE(decoder.load().running, 3);
  }
  while (decoder.advance()) {
  }
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    EXPECT_EQ(told[i].ids, slow_greedy(*model, kPrompts[i], -1, 3 + static_cast<int64_t>(4 * i))) << i;
    ASSERT_EQ(told[i].ends.size(), 1u);
    EXPECT_EQ(told[i].ends[0].end, AnswerEnd::kLength);
    EXPECT_EQ(told[i].ends[0].prompt_tokens, static_cast<int64_t>(kPrompts[i].size()));
    EXPECT_EQ(told[i].ends[0].made_tokens, static_cast<int64_t>(told[i].ids.size()));
  }
  EXPECT_EQ(decoder.load().running + decoder.load().waiting + decoder.load().cache_tokens_used, 0);
  EXPECT_EQ(decoder.load().read_tokens, 16) << "of prompts alone";
}

TEST(Decoder, CancelledRequestsEndOnceWhereverTheyAre) {
  const auto model = small_model();
  std::vector<Told> told(4);
  {
    Decoder decoder(*model, {.running = 1});
    const auto first = submit(decoder, greedy({1, 2}, 50), told[0]);
    const auto second = submit(decoder, greedy({1, 2}, 50), told[1]);
    submit(decoder, greedy({3}, 50), told[2]);
    decoder.advance(), decoder.advance();
    decoder.cancel(second), decoder.cancel(first), decoder.cancel(first), decoder.cancel(12345);
    decoder.advance();
    EXPECT_EQ(told[0].ids.size(), 2u);
    EXPECT_TRUE(told[1].ids.empty());
    EXPECT_EQ(told[2].ids.size(), 1u) << "the next one has its place";
    submit(decoder, greedy({4}, 50), told[3]);
  }  // and what has not ended does so with the decoder
  for (const Told& one : told) {
    ASSERT_EQ(one.ends.size(), 1u);
    EXPECT_EQ(one.ends[0].end, AnswerEnd::kInterrupted);
    EXPECT_EQ(one.ends[0].error, "");
  }
}

TEST(Decoder, ACallbackEndsItsAnswerAloneAlsoByThrowing) {
  const auto model = small_model();
  Decoder decoder(*model);
  std::vector<Told> told(3);
  for (size_t i = 0; i < told.size(); ++i) {
    auto request = greedy({1, 2, 3}, 5);
    if (i == 1) request.on_token = [](const DecodedToken&) { return false; };
    if (i == 2) request.on_token = [](const DecodedToken&) -> bool { throw std::runtime_error("no"); };
    submit(decoder, std::move(request), told[i]);
  }
  while (decoder.advance()) {
  }
  EXPECT_EQ(told[0].ids.size(), 5u);
  EXPECT_EQ(told[1].ids.size(), 1u);
  EXPECT_EQ(told[1].ends.at(0).end, AnswerEnd::kStopped);
  EXPECT_EQ(told[2].ends.at(0).error, "no");
  EXPECT_TRUE(told[2].ends.at(0).failure);
}

TEST(Decoder, TellsLogProbabilities) {
  const auto model = small_model();
  Decoder decoder(*model);
  std::vector<DecodedToken> tokens;
  auto request = greedy({1, 2, 3}, 4);
  request.logprobs = 3;
  request.on_token = [&](const DecodedToken& token) { return tokens.push_back(token), true; };
  decoder.submit(std::move(request));
  while (decoder.advance()) {
  }
  ASSERT_EQ(tokens.size(), 4u);
  for (const auto& token : tokens) {
    ASSERT_EQ(token.likeliest.size(), 3u);
    EXPECT_EQ(token.likeliest[0].first, token.id) << "greedy";
    EXPECT_EQ(token.likeliest[0].second, token.logprob);
    EXPECT_GT(token.likeliest[0].second, token.likeliest[1].second);
    EXPECT_LT(token.logprob, 0);
  }
}

TEST(Decoder, AThreadRunsItWhileOthersSubmit) {
  const auto model = small_model();
  const auto wanted = slow_greedy(*model, {1, 2, 3}, -1, 6);
  std::atomic<int> ended = 0, right = 0;
  {
    Decoder decoder(*model);
    std::jthread runner([&](const std::stop_token& stop) { decoder.run(stop); });
    std::vector<std::jthread> clients;
    for (int client = 0; client < 4; ++client)
      clients.emplace_back([&] {
        for (int i = 0; i < 3; ++i) {
          auto ids = std::make_shared<std::vector<int32_t>>();
          auto request = greedy({1, 2, 3}, 6);
          request.on_token = [ids](const DecodedToken& token) { return ids->push_back(token.id), true; };
          request.on_end = [&, ids](const DecodeEnd&) {
            right += *ids == wanted, ended += 1, ended.notify_all();
          };
          decoder.submit(std::move(request));
        }
      });
    clients.clear();
    for (int seen = ended; seen < 12; seen = ended) ended.wait(seen);
  }
  EXPECT_EQ(right, 12);
}

TEST(Decoder, PromptsThatCanNeverBeReadAreRefused) {
  const auto model = small_model();
  Decoder decoder(*model, {.cache_tokens = 64});
  const auto fail = [&](std::vector<int32_t> ids) {
    return testing::error_of(ExitCode::kUsage, [&] { decoder.submit(greedy(std::move(ids), 2)); });
  };
  EXPECT_NE(fail({}).find("at least one token"), std::string::npos);
  EXPECT_NE(fail({1, 64}).find("no token 64"), std::string::npos);
  EXPECT_NE(fail(std::vector<int32_t>(65, 1)).find("larger than the whole cache"), std::string::npos);
  EXPECT_NE(fail(std::vector<int32_t>(5000, 1)).find("too long"), std::string::npos);
  EXPECT_FALSE(decoder.advance());
}

}  // namespace
}  // namespace tightloop
