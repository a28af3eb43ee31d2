#include "infer/calculator_calls.h"

#include "data/byte_tokenizer.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using Kind = CalculatorCalls::Part::Kind;

const std::vector<std::string> kTools{"<|python_start|>", "<|python_end|>", "<|output_start|>",
                                      "<|output_end|>"};

std::string after(const CalculatorCalls& calls, const Tokenizer& tokenizer, std::string_view text) {
  CalculatorCalls::Progress progress;
  std::string forced;
  for (const int32_t id : tokenizer.encode(text)) forced += tokenizer.decode(calls.after(progress, id));
  return forced;
}

TEST(CalculatorCalls, ResultsFollowCalls) {
  const ByteTokenizer tokenizer(kTools);
  const CalculatorCalls calls(tokenizer);
  ASSERT_TRUE(calls.possible());
  const std::string twelve = "<|output_start|>12<|output_end|>";
  EXPECT_EQ(after(calls, tokenizer, "so <|python_start|>3*4<|python_end|> is"), twelve);
  EXPECT_EQ(after(calls, tokenizer, "<|python_start|>3*4"), "");
  EXPECT_EQ(after(calls, tokenizer, "3*4<|python_end|>"), "") << "no call has begun";
  EXPECT_EQ(after(calls, tokenizer, "<|python_start|><|python_end|>"), "");
  EXPECT_EQ(after(calls, tokenizer, "<|python_start|>1/0<|python_end|>"), "");
  EXPECT_EQ(after(calls, tokenizer, "<|python_start|>9<|python_start|>3*4<|python_end|>"), twelve)
      << "a new call begins afresh";
  EXPECT_FALSE(CalculatorCalls(ByteTokenizer{}).possible());
}

TEST(CalculatorCalls, PartsOfAnAnswer) {
  const ByteTokenizer tokenizer(kTools);
  const CalculatorCalls calls(tokenizer);
  std::vector<std::pair<Kind, std::string>> parts;
  const auto ids = tokenizer.encode(
      "a <|python_start|>1+1<|python_end|><|output_start|>2<|output_end|>2<|python_start|>x<|python_end|>");
  for (const auto& part : calls.parts(ids)) parts.emplace_back(part.kind, tokenizer.decode(part.ids));
  const std::vector<std::pair<Kind, std::string>> wanted{{Kind::kText, "a "},
                                                         {Kind::kCall, "1+1"},
                                                         {Kind::kResult, "2"},
                                                         {Kind::kText, "2"},
                                                         {Kind::kCall, "x"}};
  EXPECT_EQ(parts, wanted);
}

}  // namespace
}  // namespace tightloop
