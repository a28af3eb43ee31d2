#include <gtest/gtest.h>

#include "program.h"

namespace tightloop::testing {
namespace {

const std::string kSource = TIGHTLOOP_SOURCE_DIR;

// Two small models that others use: one that learned conversations, one that translates.
class Hostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    std::string talk;
    for (int i = 0; i < 200; ++i)
      talk += "{\"question\": \"What is " + std::to_string(i) + "?\", \"answer\": \"It is " +
              std::to_string(i) + ".\"}\n";
    write_file_whole(*folder_ / "talk.jsonl", talk);
    const std::string small =
        "--model.layers 1 --model.width 32 --model.heads 2 --train.device cpu --train.precision fp32 "
        "--train.steps 4 ";
    ok("tightloop train '" + kSource + "/configs/text.yaml' " + small +
       "--tokenizer.vocab_size 300 --data.source jsonl --data.train talk.jsonl --data.holdout 0.2 "
       "--data.rows pad "
       "--data.seq_len 64 --chat.form own --chat.user '<user>{content}' "
       "--chat.assistant '<bot>{content}<|endoftext|>' --run.name talk");
  }
  static void TearDownTestSuite() { delete folder_; }
  static Outcome in(const std::string& command) { return run(folder_->path(), command); }
  static void ok(const std::string& command) {
    const auto outcome = in(command);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  static TempFolder* folder_;
};

TempFolder* Hostile::folder_ = nullptr;

TEST_F(Hostile, OutputIntoAFullDeviceIsAnError) {
  const std::string recipe = "'" + kSource + "/configs/quickstart.yaml' ";
  write_file_whole(*folder_ / "a.txt", "one two\n");
  for (const std::string& verb :
       std::vector<std::string>{"config",
                                "config --yaml",
                                "--help",
                                "train --help",
                                "--version",
                                "doctor",
                                "doctor --json",
                                "generate --run runs/talk --prompt x --max-tokens 4 --device cpu",
                                "generate --run runs/talk --prompt x --max-tokens 4 --device cpu --json",
                                "eval --run runs/talk --device cpu --limit 2",
                                "eval --run runs/talk --device cpu --limit 2 --json",
                                "model show " + recipe,
                                "model show " + recipe + "--json",
                                "fit " + recipe,
                                "data check " + recipe,
                                "data show " + recipe,
                                "data order " + recipe + "--batches 4",
                                "bleu --ref a.txt --hyp a.txt",
                                "bleu --ref a.txt --hyp a.txt --json",
                                "inspect batch --run runs/talk",
                                "tokenizer encode --tokenizer runs/talk/tokenizer < a.txt"}) {
    const auto outcome = in("tightloop " + verb + " > /dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << verb << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "standard output")) << verb << "\n" << outcome.output;
  }
  const auto chat = in("echo hello | tightloop chat --run runs/talk --device cpu --max-tokens 4 > /dev/full");
  EXPECT_EQ(chat.exit_code, 1) << chat.output;
}

TEST_F(Hostile, OutputThatNobodyReadsEndsQuietly) {
  const auto outcome =
      in("(tightloop config; echo code $? >&2) 2>&1 >/dev/null | cat; "
         "(tightloop config --markdown; echo code $? >&2) | true");
  EXPECT_TRUE(contains(outcome.output, "code 0\ncode 141\n")) << outcome.output;
}

TEST_F(Hostile, AQuestionFarLongerThanTheContextIsLeftOut) {
  const auto talk =
      in("(head -c 3000000 /dev/zero | tr '\\0' a; echo; echo 'What is 3?') | timeout 20 "
         "'" TIGHTLOOP_BINARY_DIR "/tightloop' chat --run runs/talk --device cpu --max-tokens 4");
  EXPECT_EQ(talk.exit_code, 3) << talk.output;
  EXPECT_TRUE(contains(talk.output, "line 1 is left out")) << talk.output;
  const auto shorter =
      in("(head -c 40000 /dev/zero | tr '\\0' a; echo) | tightloop chat --run runs/talk --device cpu");
  EXPECT_EQ(shorter.exit_code, 3) << shorter.output;
  EXPECT_TRUE(contains(shorter.output, "4096 at most")) << shorter.output;
}

TEST_F(Hostile, PromptsAreBoundedByTheContext) {
  const auto outcome =
      in("head -c 3000000 /dev/zero | tr '\\0' a > long.txt; timeout 20 '" TIGHTLOOP_BINARY_DIR
         "/tightloop' generate --run runs/talk --device cpu --max-tokens 2 < long.txt");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "3000000 bytes")) << outcome.output;
  const auto file = in("timeout 20 '" TIGHTLOOP_BINARY_DIR
                       "/tightloop' generate --run runs/talk --device cpu --prompts long.txt");
  EXPECT_EQ(file.exit_code, 2) << file.output;
}

TEST_F(Hostile, NumbersThatAreNoneAreRefused) {
  for (const char* option : {"generate --temperature", "generate --top-p", "generate --min-p",
                             "generate --repetition-penalty", "chat --temperature", "eval --temperature",
                             "translate --temperature", "translate --top-p", "translate --length-penalty"})
    for (const char* value : {"nan", "inf"}) {
      const auto outcome = in(std::string("tightloop ") + option + "=" + value + " < /dev/null");
      EXPECT_EQ(outcome.exit_code, 2) << option << value << outcome.output;
      EXPECT_TRUE(contains(outcome.output, "is not a number from")) << outcome.output;
    }
  for (const char* setting : {"--train.lr nan", "--model.norm_eps inf", "--data.holdout -nan"}) {
    const auto outcome = in(std::string("tightloop config ") + setting);
    EXPECT_EQ(outcome.exit_code, 2) << setting << outcome.output;
  }
}

TEST_F(Hostile, NamesAndMessagesCannotDriveTheTerminal) {
  const std::string escape = "\x1b]0;owned\x07", name = "$(printf '\\033]0;owned\\007')";
  for (const std::string& command : std::vector<std::string>{
           "train \"" + name + ".yaml\"", "generate --run \"" + name + "\"", "\"" + name + "\"",
           "train '" + kSource + "/configs/text.yaml' --data.train \"" + name + "\"",
           "config --\"" + name + ".x\" 1"}) {
    const auto outcome = in("tightloop " + command);
    EXPECT_NE(outcome.exit_code, 0) << command;
    EXPECT_FALSE(contains(outcome.output, escape)) << command << "\n" << outcome.output;
    EXPECT_FALSE(contains(outcome.output, "\x1b")) << command << "\n" << outcome.output;
  }
}

TEST_F(Hostile, TheModelsTextIsExactInAPipeAndHarmlessOnATerminal) {
  const std::string ask =
      "generate --run runs/talk --device cpu --temperature 0 --max-tokens 1 --prompt \"$(printf "
      "'a\\033[2Jb')\"";
  EXPECT_TRUE(contains(in("tightloop " + ask).output, "a\x1b[2Jb"));
  const auto seen = in(
      "command -v script >/dev/null || { echo no script; exit 0; }; printf '%s\\n' \"'" TIGHTLOOP_BINARY_DIR
      "/tightloop' generate --run runs/talk --device cpu --temperature 0 --max-tokens 1 --prompt "
      "\\\"\\$(printf 'a\\\\033[2Jb')\\\"\" > ask.sh; NO_COLOR=1 script -qec 'sh ask.sh' /dev/null");
  if (contains(seen.output, "no script")) GTEST_SKIP() << "there is no 'script' to make a terminal";
  EXPECT_TRUE(contains(seen.output, "a\\x1b[2Jb")) << seen.output;
}

TEST_F(Hostile, SignalsReachChatAndGenerate) {
  const auto timed = [&](const std::string& command) {
    return in("'" TIGHTLOOP_BINARY_DIR "/tightloop' " + command +
              " & child=$!; sleep 2; kill -TERM $child; wait $child; code=$?; exit $code");
  };
  EXPECT_EQ(timed("generate --run runs/talk --device cpu --prompt x --n 100000 --batch 2").exit_code, 130);
  EXPECT_EQ(in("mkfifo held; sleep 9 > held & '" TIGHTLOOP_BINARY_DIR
               "/tightloop' chat --run runs/talk --device cpu < held & child=$!; sleep 3; kill -TERM $child; "
               "wait $child")
                .exit_code,
            130);
}

}  // namespace
}  // namespace tightloop::testing
