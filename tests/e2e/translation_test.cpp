#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files.h"
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
  const auto piped =
      nlohmann::json::parse(run(folder.path(), "cat hyp | tightloop bleu --ref ref --hyp - --json").output);
  EXPECT_EQ(piped, json);
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
    const auto joint = run(folder.path(), train + "joint --overwrite --type " + type);
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

/// The toy recipe, cut short: what it says is nonsense, how it is asked is not.
class Translator : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    const auto trained =
        in("tightloop train '" TIGHTLOOP_SOURCE_DIR
           "/configs/translate-toy.yaml' --train.device cpu --train.precision fp32 --model.width 32 "
           "--model.layers 1 --model.ffn 32 --train.steps 12 --train.save_steps 4 --tasks.questions 600 "
           "--tokenizer.vocab_size 120 "
           "--tasks.held_out 20 --train.eval_steps 6 --train.eval_translations 5 --run.name toy");
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    EXPECT_TRUE(contains(trained.output, ", BLEU ")) << trained.output;
    EXPECT_TRUE(contains(trained.output, ", without label smoothing)")) << trained.output;
  }
  static void TearDownTestSuite() { delete folder_; }
  static testing::Outcome in(const std::string& command) { return run(folder_->path(), command); }

  static inline TempFolder* folder_ = nullptr;
};

TEST_F(Translator, AnswersEveryLineWithALine) {
  {
    std::ofstream lines(*folder_ / "in");
    lines << "a dog sees the cat.\n\n   \nпривет мир 你好 \xf0\x9f\x98\x80\n\xff\xfe broken\nsame\r\n";
    for (int i = 0; i < 10'000; ++i) lines << "word ";
    lines << "\nno newline at the end";
  }
  const auto all =
      in("tightloop translate --run runs/toy --beam 2 < in 2> warnings > out; echo code $?; wc -l < out");
  EXPECT_TRUE(contains(all.output, "code 0\n8\n")) << all.output;
  const auto warnings = read_file(*folder_ / "warnings");
  EXPECT_TRUE(contains(warnings, "line 7")) << "the long one is cut: " << warnings;
  std::istringstream out(read_file(*folder_ / "out"));
  std::string line;
  std::getline(out, line);
  std::getline(out, line);
  EXPECT_EQ(line, "") << "nothing to translate";

  EXPECT_EQ(in("tightloop translate --run runs/toy < /dev/null").output, "");
  const auto best = in("head -1 in | tightloop translate --run runs/toy --beam 3 --nbest 3 --scores");
  EXPECT_EQ(std::count(best.output.begin(), best.output.end(), '\t'), 5) << best.output;
  const auto json =
      nlohmann::json::parse(in("head -1 in | tightloop translate --run runs/toy --json").output);
  EXPECT_EQ(json["source"], "a dog sees the cat.");
  EXPECT_EQ(json["translations"].size(), 1u);
}

TEST_F(Translator, DoesNotWaitForASlowPipe) {
  const auto slow = in(
      ": > now; (echo a dog; echo a cat; for i in $(seq 200); do [ $(wc -l < now) = 2 ] && echo seen >&2 && "
      "break; sleep 0.1; done; echo the end) | tightloop translate --run runs/toy > now");
  EXPECT_TRUE(contains(slow.output, "seen")) << slow.output;
  const auto whole = in("printf 'a dog\na cat\nthe end\n' | tightloop translate --run runs/toy --input -");
  EXPECT_EQ(read_file(*folder_ / "now"), whole.output);
}

TEST_F(Translator, SaysWhichOptionsHaveNoEffect) {
  const std::string base = "echo a dog | tightloop translate --run runs/toy ";
  const auto sample = in(base + "--sample --beam 3").output, beam = in(base + "--temperature 2").output;
  EXPECT_TRUE(contains(sample, "--beam has no effect here")) << sample;
  EXPECT_TRUE(contains(beam, "--temperature has no effect here: it is for --sample")) << beam;
}

TEST_F(Translator, TakesAFile) {
  write_file_whole(*folder_ / "two.en", "a dog sees the cat.\na cat\n");
  const std::string base = "tightloop translate --run runs/toy --beam 2 ";
  const auto file = in(base + "--input two.en");
  EXPECT_EQ(file.exit_code, 0) << file.output;
  EXPECT_EQ(file.output, in(base + "< two.en").output);
  EXPECT_EQ(in(base + "--input absent.en").exit_code, 3);
}

TEST_F(Translator, HasAPromptAtATerminal) {
  if (in("command -v script").exit_code != 0) GTEST_SKIP() << "not here: script";
  const auto talk =
      in("(sleep 1; printf 'a dog\\r'; sleep 1; printf 'abc\\003'; sleep 0.5; printf '\\004') | TERM=xterm "
         "script -qec "
         "\"'" TIGHTLOOP_BINARY_DIR "/tightloop' translate --run runs/toy --scores\" /dev/null");
  EXPECT_EQ(talk.exit_code, 0) << talk.output;
  EXPECT_TRUE(contains(talk.output, "Type a sentence")) << talk.output;
  EXPECT_TRUE(contains(talk.output, "\t")) << "a score and a translation: " << talk.output;
  EXPECT_TRUE(contains(talk.output, "(Ctrl-D ends)")) << talk.output;
}

TEST_F(Translator, IsEvaluatedAveragedAndTimed) {
  const auto scores = in("tightloop eval --run runs/toy --json");
  ASSERT_EQ(scores.exit_code, 0) << scores.output;
  EXPECT_TRUE(contains(scores.output, "bleu")) << scores.output;
  for (const std::string option : {"--input", "--questions", "--suite"}) {
    const auto refused = in("tightloop eval --run runs/toy " + option + " few");
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_TRUE(contains(refused.output, option + ": 'runs/toy' is a translator")) << refused.output;
  }
  const auto averaged =
      in("tightloop average --run runs/toy --last 2 --output averaged && echo x | tightloop translate "
         "--run averaged | wc -l");
  EXPECT_TRUE(contains(averaged.output, "1\n")) << averaged.output;
  std::ofstream(*folder_ / "few") << "a dog.\nthe cats.\n";
  const auto timed = nlohmann::json::parse(
      in("tightloop bench translate --run runs/toy --source few --beam 2 --json").output);
  EXPECT_EQ(timed["sentences"], 2);
  EXPECT_GT(timed["sentences_s"].get<double>(), 0);
  EXPECT_EQ(in("tightloop bench translate").exit_code, 2);
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
