// Whose keys and values have a place in the cache, and which are found there again.
#include "infer/decoder.h"
#include "infer/model.h"
#include "infer/slow_greedy.h"
#include "infer/told.h"

namespace tightloop {
namespace {

using testing::greedy;
using testing::slow_greedy;
using testing::submit;
using testing::Told;

TEST(CacheRoom, PromptsReadBeforeAreNotReadAgain) {
  const auto model = testing::small_model();
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 50; ++i) prompt.push_back(i * 7 % 39);
  for (const bool share : {true, false}) {
    Decoder decoder(*model, {.share_prefixes = share});
    Told first, second, third;
    submit(decoder, greedy(prompt, 5), first);
    while (decoder.advance()) {
    }
    submit(decoder, greedy(prompt, 5), second);
    auto longer = prompt;
    longer.insert(longer.end(), first.ids.begin(), first.ids.end());
    longer.push_back(3);
    submit(decoder, greedy(longer, 5), third);
    while (decoder.advance()) {
    }
    EXPECT_EQ(second.ids, first.ids);
    EXPECT_EQ(third.ids, slow_greedy(*model, longer, -1, 5));
    EXPECT_EQ(second.ends.at(0).shared_tokens, share ? 48 : 0);
    EXPECT_EQ(third.ends.at(0).shared_tokens, share ? 48 : 0);
  }
}

TEST(CacheRoom, WhoWaitsForRoomTakesNothingThatOthersMayFind) {
  const auto model = testing::small_model();
  const auto prompt = [](int32_t first, size_t tokens) {
    std::vector<int32_t> ids(tokens);
    for (size_t i = 0; i < tokens; ++i) ids[i] = (first + static_cast<int32_t>(i) * 7) % 40;
    return ids;
  };
  Decoder decoder(*model, {.cache_tokens = 160});
  std::vector<Told> told(4);
  submit(decoder, greedy(prompt(1, 33), 1), told[0]);
  while (decoder.advance()) {
  }
  submit(decoder, greedy(prompt(2, 81), 20), told[1]);
  decoder.advance();
  const auto waiting = submit(decoder, greedy(prompt(3, 100), 5), told[2]);
  for (int i = 0; i < 3; ++i) decoder.advance();
  EXPECT_EQ(decoder.load().waiting, 1);
  decoder.cancel(waiting);
  submit(decoder, greedy(prompt(1, 33), 1), told[3]);
  while (decoder.advance()) {
  }
  EXPECT_EQ(told[3].ends.at(0).shared_tokens, 32);
  EXPECT_EQ(told[3].ids, told[0].ids);
}

TEST(CacheRoom, OneThatNeedsTheWholeCacheEndsThere) {
  const auto model = testing::small_model();
  for (const int64_t ahead : {0, 3}) {
    Decoder decoder(*model, {.cache_tokens = 32, .ahead = ahead});
    Told told;
    submit(decoder, greedy({1, 2, 3}, 100), told);
    while (decoder.advance()) {
    }
    EXPECT_EQ(told.ends.at(0).end, AnswerEnd::kContextFull);
    EXPECT_EQ(told.ids, slow_greedy(*model, {1, 2, 3}, -1, 30)) << "the last one is made, not read";
  }
}

}  // namespace
}  // namespace tightloop
