#include "infer/thoughts.h"

#include <gtest/gtest.h>

#include "data/byte_tokenizer.h"

namespace tightloop {
namespace {

TEST(Thoughts, AreTakenOffAnAnswer) {
  EXPECT_EQ(without_thoughts("<think>\n1 + 1\n</think>\n\n2"), "\n\n2");
  EXPECT_EQ(without_thoughts("\n<think></think>2"), "2");
  EXPECT_EQ(without_thoughts("2"), "2");
  EXPECT_EQ(without_thoughts("2 </think> 3"), "2 </think> 3") << "no thought began";
  EXPECT_EQ(without_thoughts("2 <think>3</think>"), "2 <think>3</think>") << "an answer came first";
  EXPECT_EQ(without_thoughts("<think>\n1 + 1 = 2"), "") << "it still thinks";
}

TEST(Thoughts, MayBeginInThePrompt) {
  EXPECT_EQ(without_thoughts("1 + 1\n</think>\n\n2", /*opened=*/true), "\n\n2");
  EXPECT_EQ(without_thoughts("1 + 1 = 2", /*opened=*/true), "");
  const testing::ByteTokenizer tokenizer({"<think>", "</think>"});
  EXPECT_TRUE(opens_thinking(tokenizer, tokenizer.encode("assistant\n<think>\n")));
  EXPECT_FALSE(opens_thinking(tokenizer, tokenizer.encode("assistant\n<think>\n\n</think>\n\n")));
  EXPECT_FALSE(opens_thinking(tokenizer, {}));
}

}  // namespace
}  // namespace tightloop
