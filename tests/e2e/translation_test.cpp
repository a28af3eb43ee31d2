#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

TEST(BleuVerb, ScoresFilesForPeopleAndPrograms) {
  const TempFolder folder;
  std::ofstream(folder / "ref") << "the cat sat on the mat .\n\nHello, World!\n";
  std::ofstream(folder / "hyp") << "the cat sat on a mat .\nx\nhello, world!\n";
  const auto text = run(folder.path(), "tightloop bleu --ref ref --hyp hyp");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(contains(text.output, "tok:13a")) << text.output;
  const auto json =
      nlohmann::json::parse(run(folder.path(), "tightloop bleu --ref ref --hyp hyp --json").output);
  const auto lower = nlohmann::json::parse(
      run(folder.path(), "tightloop bleu --ref ref --hyp hyp --json --lowercase --sentence").output);
  EXPECT_GT(json["bleu"].get<double>(), 10);
  EXPECT_LT(json["bleu"].get<double>(), lower["bleu"].get<double>());
  EXPECT_LT(json["chrf"].get<double>(), lower["chrf"].get<double>());
  EXPECT_TRUE(contains(lower["signature"].get<std::string>(), "case:lc|eff:yes"));
  ASSERT_EQ(lower["sentences"].size(), 3u);
  EXPECT_NEAR(lower["sentences"][2]["bleu"].get<double>(), 100, 1e-9);
  EXPECT_EQ(lower["sentences"][1]["bleu"].get<double>(), 0);
  const auto same = nlohmann::json::parse(
      run(folder.path(), "tightloop bleu --ref ref --hyp hyp --hyp2 hyp --samples 50 --json").output);
  EXPECT_EQ(same["bootstrap"]["bleu"]["first"], same["bootstrap"]["bleu"]["second"]);
}

TEST(BleuVerb, SidesOfDifferentLengthAreRefusedByLine) {
  const TempFolder folder;
  std::ofstream(folder / "ref") << "a\nb\nc\n";
  std::ofstream(folder / "hyp") << "a\n";
  std::ofstream(folder / "empty");
  const auto shorter = run(folder.path(), "tightloop bleu --ref ref --hyp hyp");
  EXPECT_EQ(shorter.exit_code, 3);
  EXPECT_TRUE(contains(shorter.output, "line 2 of 'ref'")) << shorter.output;
  const auto longer = run(folder.path(), "tightloop bleu --ref hyp --hyp ref");
  EXPECT_EQ(longer.exit_code, 3);
  EXPECT_TRUE(contains(longer.output, "line 2 of 'ref'")) << longer.output;
  const auto empty = run(folder.path(), "tightloop bleu --ref empty --hyp ref");
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_TRUE(contains(empty.output, "line 1")) << empty.output;
  EXPECT_EQ(run(folder.path(), "tightloop bleu --ref empty --hyp empty").exit_code, 3);
  EXPECT_EQ(run(folder.path(), "tightloop bleu --ref ref --hyp missing").exit_code, 3);
  EXPECT_EQ(run(folder.path(), "tightloop bleu --ref ref --hyp ref --tokenize intl").exit_code, 2);
}

TEST(TokenizerVerb, TrainsSentencePieceOnPairs) {
  const TempFolder folder;
  std::ofstream sources(folder / "a.en"), targets(folder / "a.de");
  for (int i = 0; i < 200; ++i) {
    sources << (i % 2 ? "the cat sees a dog\n" : "a dog sleeps here\n");
    targets << (i % 2 ? "die katze sieht einen hund\n" : "ein hund schläft zwar hier\n");
  }
  sources.close(), targets.close();
  const std::string train = "tightloop tokenizer train a.en --target a.de --vocab-size 30 --output ";
  for (const std::string type : {"unigram", "bpe"}) {
    const auto joint = run(folder.path(), train + "joint --type " + type);
    ASSERT_EQ(joint.exit_code, 0) << joint.output;
    const auto both = run(folder.path(),
                          "echo 'die katze sees' | tightloop tokenizer encode --tokenizer joint --lines | "
                          "tightloop tokenizer decode --tokenizer joint --lines");
    EXPECT_EQ(both.output, "die katze sees\n");
  }
  const auto source =
      run(folder.path(),
          "tightloop tokenizer train a.en --target a.de --vocab-size 22 --output source --side "
          "source --type unigram");
  ASSERT_EQ(source.exit_code, 0) << source.output;
  const auto unknown = run(folder.path(),
                           "echo 'zz' | tightloop tokenizer encode --tokenizer source --lines | tightloop "
                           "tokenizer decode --tokenizer source --lines");
  EXPECT_FALSE(contains(unknown.output, "zz")) << "the sources have no z";
  EXPECT_EQ(run(folder.path(), train + "x --type byte_bpe").exit_code, 2);
  EXPECT_EQ(run(folder.path(), "tightloop tokenizer train a.en --side target --output x").exit_code, 2);
}

TEST(TranslateVerb, NeedsARunThatTranslates) {
  const TempFolder folder;
  EXPECT_EQ(run(folder.path(), "echo x | tightloop translate --run nowhere").exit_code, 2);
  const auto more = run(folder.path(), "echo x | tightloop translate --run nowhere --beam 2 --nbest 3");
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_TRUE(contains(more.output, "--beam")) << more.output;
}

}  // namespace
}  // namespace tightloop
