#include "dist/fault.h"

#include <c10/util/Exception.h>

#include <new>
#include <system_error>

#include "dist/agreement.h"
#include "support.h"

namespace tightloop::testing {
namespace {

TEST(Fault, IsTheSameBackFromItsText) {
  const Fault fault{2, ExitCode::kDevice, "rank 2 of 4 (host b): no memory\nis left. 7 8"};
  const auto back = Fault::from_text(fault.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 2);
  EXPECT_EQ(back->code, ExitCode::kDevice);
  EXPECT_EQ(back->sentence, fault.sentence);
  const auto of_all = Fault::from_text(Fault{Fault::kAll, ExitCode::kUsage, "they differ"}.text());
  ASSERT_TRUE(of_all);
  EXPECT_EQ(of_all->rank, Fault::kAll);
  EXPECT_EQ(of_all->sentence, "they differ");
}

TEST(Fault, TextsThatAreNone) {
  for (const char* text :
       {"", " ", "2", "2 ", "2 5", "a 5 b", "2 b c", "2 0 fine", "2 -1 x", "2 256 x", "2 999999999999 x"})
    EXPECT_FALSE(Fault::from_text(text)) << text;
}

TEST(Fault, OfALongSentenceIsCutBetweenCharacters) {
  std::string sentence(Fault::kMostBytes - 1, 'a');
  for (int i = 0; i < 100; ++i) sentence += "\xc3\xa4";
  const auto back = Fault::from_text(Fault{0, ExitCode::kData, sentence}.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->sentence, std::string(Fault::kMostBytes - 1, 'a') + "...");
}

TEST(LastWords, HaveTheExitCodeOfWhatHappened) {
  EXPECT_EQ(tightloop::last_words(data_error("planted {}", 7)).code(), ExitCode::kData);
  EXPECT_STREQ(tightloop::last_words(data_error("planted {}", 7)).what(), "planted 7");
  EXPECT_EQ(tightloop::last_words(std::bad_alloc()).code(), ExitCode::kDevice);
  // What a thread that cannot be started throws.
  EXPECT_EQ(tightloop::last_words(std::system_error(EAGAIN, std::generic_category())).code(), ExitCode::kDevice);
  EXPECT_EQ(tightloop::last_words(std::system_error(ENOENT, std::generic_category())).code(), ExitCode::kFailure);
  EXPECT_EQ(tightloop::last_words(std::runtime_error("other")).code(), ExitCode::kFailure);
  const auto thrown = [](auto throws) {
    try {
      throws();
    } catch (const std::exception& error) {
      return tightloop::last_words(error);
    }
    return Error(ExitCode::kOk, "nothing was thrown");
  };
  EXPECT_EQ(thrown([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "full"); }).code(), ExitCode::kDevice);
  EXPECT_EQ(
      thrown([] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried"); }).code(),
      ExitCode::kDevice);
  EXPECT_EQ(thrown([] { TORCH_CHECK(false, "shapes differ"); }).code(), ExitCode::kFailure);
}

const std::vector<std::string> kNames{"rank 0 of 3 (host a)", "rank 1 of 3 (host b)", "rank 2 of 3 (host c)"};

TEST(Disagreement, IsNoneWhereAllIsTheSame) {
  const std::vector<Fact> facts{{"version", "1"}, {"train.lr", "0.1"}};
  EXPECT_FALSE(disagreement(kNames, {facts, facts, facts}));
}

TEST(Disagreement, NamesRanksWithBothValues) {
  const auto facts = [](const char* lr, const char* data) {
    return std::vector<Fact>{{"version", "1"}, {"train.lr", lr}, {"data file 1", data, ExitCode::kData}};
  };
  const auto one = disagreement(kNames, {facts("0.1", "x"), facts("0.1", "x"), facts("0.3", "x")});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->code(), ExitCode::kUsage);
  EXPECT_NE(
      std::string(one->what()).find("rank 2 of 3 (host c) has train.lr 0.3, rank 0 of 3 (host a) has 0.1"),
      std::string::npos)
      << one->what();
  const auto first = disagreement(kNames, {facts("0.1", "x"), facts("0.3", "x"), facts("0.3", "x")});
  ASSERT_TRUE(first);
  EXPECT_NE(
      std::string(first->what())
          .find("rank 1 of 3 (host b), rank 2 of 3 (host c) have train.lr 0.3, rank 0 of 3 (host a) has 0.1"),
      std::string::npos)
      << first->what();
  const auto data = disagreement(kNames, {facts("0.1", "x"), facts("0.1", "y"), facts("0.1", "x")});
  ASSERT_TRUE(data);
  EXPECT_EQ(data->code(), ExitCode::kData);
}

TEST(Disagreement, OfVersionsIsAllThatIsSaid) {
  const auto error = disagreement(
      kNames,
      {{{"version", "1"}, {"a", "1"}}, {{"version", "1"}, {"a", "1"}}, {{"version", "2"}, {"b", "1"}}});
  ASSERT_TRUE(error);
  const std::string text = error->what();
  EXPECT_NE(text.find("(host c) has version 2, rank 0 of 3 (host a) has 1. Start"), std::string::npos)
      << text;
}

TEST(Disagreement, AFactThatOneDoesNotHaveIsNone) {
  const std::vector<Fact> with{{"version", "1"}, {"data file 2", "of 7 bytes", ExitCode::kData}},
      without{{"version", "1"}};
  for (const bool in_first : {true, false}) {
    const auto error = disagreement(kNames, {in_first ? with : without, without, in_first ? without : with});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::kData);
    EXPECT_NE(std::string(error->what()).find("data file 2"), std::string::npos);
  }
}

}  // namespace
}  // namespace tightloop::testing
