// Against nanochat's own: tests/golden/make_calculator.py made the answers.
#include "infer/calculator.h"

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

TEST(Calculator, AnswersAsNanochatDoes) {
  const auto cases =
      nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/calculator.json"));
  ASSERT_GT(cases.size(), 1500u);
  for (const auto& item : cases) {
    const auto expression = item.at(0).get<std::string>();
    const auto found = calculate(expression);
    const auto wanted = item.at(1).is_null() ? std::nullopt : std::optional(item.at(1).get<std::string>());
    EXPECT_EQ(found, wanted) << expression;
  }
}

TEST(Calculator, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(calculate("10/2"), "5.0");
  EXPECT_EQ(calculate("3*4"), "12");
  EXPECT_EQ(calculate("12/60"), "0.2");
  EXPECT_EQ(calculate("1,000*1,000"), "1000000");
  EXPECT_EQ(calculate("'strawberry'.count('r')"), "3");
}

TEST(Calculator, RefusesWhatCouldTakeLongOrIsNoArithmetic) {
  for (const std::string expression : {"9**9**9", "__import__('os')", "print(1)", "1 if 1 else 2",
                                       "[1].count(1)", "x.count('a')", "1\n+1", "\xff"})
    EXPECT_EQ(calculate(expression), std::nullopt) << expression;
  EXPECT_EQ(calculate(std::string(200'000, '(')), std::nullopt);
  EXPECT_EQ(calculate(std::string(9'000, '(') + "1"), std::nullopt);
  EXPECT_EQ(calculate(std::string(9'999, '-') + "1"), "-1");
  EXPECT_EQ(calculate(std::string(9'000, '9')), std::nullopt) << "beyond 2^126";
}

}  // namespace
}  // namespace tightloop
