// What a user's own files hold is what is trained on, whatever the recipe was made for.
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

const std::string kConfigs = "'" TIGHTLOOP_SOURCE_DIR "/configs/";
const std::string kSmall =
    "--model.layers 1 --model.width 32 --model.heads 2 --train.device cpu --train.precision fp32 "
    "--train.steps 4 --train.micro_batch 4 --train.logging_steps 2 --train.eval_steps 0 --train.save_steps "
    "0 ";

class OwnFiles : public ::testing::Test {
 protected:
  OwnFiles() {
    std::string text, chats, alpaca, prompts, pairs;
    for (int i = 0; i < 80; ++i) {
      const std::string n = std::to_string(i * 37 % 101);
      text += "Number " + n + " comes after the one before it, and the cat sleeps on the mat again.\n\n";
      chats += R"({"messages":[{"role":"user","content":"What is )" + n +
               R"(?"},{"role":"assistant","content":"It is )" + n + "\"}]}\n";
      alpaca += (i ? ",\n" : "[") +
                (R"({"instruction":"Double it.","input":")" + n + R"(","output":"Twice )") + n + "\"}";
      prompts += R"({"prompt":"Say )" + n + R"(.","completion":")" + n + "!\"}\n";
      pairs += "the number " + n + "\tdie Zahl " + n + "\n";
    }
    write_file_whole(folder_ / "a.txt", text);
    write_file_whole(folder_ / "chats.jsonl", chats);
    write_file_whole(folder_ / "alpaca.json", alpaca + "]\n");
    write_file_whole(folder_ / "prompts.jsonl", prompts);
    write_file_whole(folder_ / "pairs.tsv", pairs);
    std::string chinese;  // GBK
    for (int i = 0; i < 8; ++i)
      chinese +=
          "\275\361\314\354\314\354\306\370\272\334\272\303\243\254\316\322\303\307\310\245\271\253\n\n";
    write_file_whole(folder_ / "gbk.txt", chinese);
  }
  testing::Outcome in(const std::string& command) { return run(folder_.path(), command); }
  testing::Outcome ok(const std::string& command) {
    auto outcome = in(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
    return outcome;
  }
  std::string config_of(const std::string& name) {
    return read_file(folder_ / ("runs/" + name + "/config.yaml"));
  }

  const TempFolder folder_;
};

TEST_F(OwnFiles, TextMakesABaseModelAndConversationsMakeItAnswer) {
  ok("tightloop train " + kConfigs +
     "text.yaml' --data.train a.txt --run.name base --tokenizer.vocab_size 300 "
     "--data.seq_len 64 " +
     kSmall);
  EXPECT_TRUE(contains(config_of("base"), "source: \"text\"")) << config_of("base");
  const std::string chat = "tightloop train " + kConfigs +
                           "minimind-64m-sft.yaml' --train.init_from runs/base --train.device cpu "
                           "--train.precision fp32 --train.steps 4 ";
  const auto trained = ok(chat + "--data.train chats.jsonl --run.name talk");
  EXPECT_TRUE(
      contains(trained.output, "chats.jsonl holds conversations (messages): data.source jsonl, format chat"))
      << trained.output;
  EXPECT_TRUE(contains(config_of("talk"), "source: \"jsonl\"")) << config_of("talk");
  ok("tightloop train --resume runs/talk --train.steps 6");
  ok("echo 'What is 5?' | tightloop chat --run runs/talk --max-tokens 4");
  // Templates, tools and variables of another form are taken from the command line.
  write_file_whole(
      folder_ / "other.jinja",
      "{{ tools[0].name if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
      "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  write_file_whole(folder_ / "tools.json", R"([{"name": "find"}])");
  ok("echo 'What is 5?' | tightloop chat --run runs/talk --max-tokens 4 --chat.form template --chat.template "
     "other.jinja --tools tools.json");
  const auto other =
      run(folder_.path(), "tightloop chat --run runs/talk --chat.template none.jinja </dev/null");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.output, "none.jinja")) << other.output;
  ok("tightloop generate --run runs/talk --prompt hello --max-tokens 4");
  const auto plain = in(chat + "--data.train a.txt --run.name no");
  EXPECT_EQ(plain.exit_code, 3) << plain.output;
  EXPECT_TRUE(contains(plain.output, "this recipe learns conversations")) << plain.output;
  EXPECT_FALSE(fs::exists(folder_ / "runs/no"));
}

TEST_F(OwnFiles, ASentencePieceModelHasTheMarksOfAChatToo) {
  ok("tightloop train " + kConfigs +
     "text.yaml' --data.train a.txt --run.name base --tokenizer.type unigram --tokenizer.vocab_size 120 "
     "--data.seq_len 64 " +
     kSmall);
  ok("tightloop train " + kConfigs +
     "minimind-64m-sft.yaml' --train.init_from runs/base --data.train chats.jsonl --run.name talk "
     "--train.device cpu "
     "--train.precision fp32 --train.steps 4");
  ok("echo 'What is 5?' | tightloop chat --run runs/talk --max-tokens 4");
}

TEST_F(OwnFiles, TakeThePlaceOfGeneratedData) {
  const struct {
    std::string recipe, file, says;
  } kCases[] = {{"quickstart", "a.txt", "a.txt holds plain text: data.source text"},
                {"quickstart", "alpaca.json", "conversations (instruction, output): data.source jsonl"},
                {"quickstart", "prompts.jsonl", "conversations (prompt, completion): data.source jsonl"}};
  int number = 0;
  for (const auto& it : kCases) {
    const std::string name = "run" + std::to_string(number++);
    const auto outcome = ok("tightloop train " + kConfigs + it.recipe + ".yaml' --data.train " + it.file +
                            " --run.name " + name + " " + kSmall);
    EXPECT_TRUE(contains(outcome.output, it.says)) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "data.loss_after is empty")) << outcome.output;
    EXPECT_FALSE(contains(outcome.output, "Questions answered")) << outcome.output;
    EXPECT_TRUE(contains(config_of(name), "seq_len: 128")) << config_of(name);
  }
  const auto shown =
      ok("tightloop data show " + kConfigs + "quickstart.yaml' --data.train chats.jsonl --rows 1");
  EXPECT_TRUE(contains(shown.output, "What is")) << shown.output;
  const auto both =
      in("tightloop train " + kConfigs + "quickstart.yaml' --data.source tasks --data.train a.txt");
  EXPECT_EQ(both.exit_code, 2) << both.output;
}

TEST_F(OwnFiles, PairsMakeATranslator) {
  const auto outcome = ok(
      "tightloop train " + kConfigs +
      "translate-toy.yaml' --data.train pairs.tsv --train.steps 4 --train.device cpu --train.precision fp32 "
      "--run.name pairs");
  EXPECT_TRUE(
      contains(outcome.output, "pairs.tsv holds pairs of sentences (tab-separated): data.source pairs"))
      << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "not the 4096 that were asked for")) << outcome.output;
  const auto text =
      in("tightloop train " + kConfigs + "translate-toy.yaml' --data.train a.txt --run.name no");
  EXPECT_EQ(text.exit_code, 3) << text.output;
  EXPECT_TRUE(contains(text.output, "--data.train_target")) << text.output;
}

TEST_F(OwnFiles, PairsOfDifferentLengthsAreRefusedByEveryVerb) {
  std::string source, target;
  for (int i = 0; i < 100; ++i) {
    source += "sentence " + std::to_string(i) + "\n";
    if (i != 50) target += "Satz " + std::to_string(i) + "\n";
  }
  write_file_whole(folder_ / "p.en", source);
  write_file_whole(folder_ / "p.de", target);
  const std::string files = kConfigs + "translate-toy.yaml' --data.train p.en --data.train_target p.de ";
  for (const std::string& command :
       {"train " + files + "--run.name no", "data check " + files, "prepare " + files + "--output shards"}) {
    const auto outcome = in("tightloop " + command);
    EXPECT_EQ(outcome.exit_code, 3) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "'p.en' has 100 lines and 'p.de' has 99")) << command << "\n"
                                                                                    << outcome.output;
  }
  ok("tightloop data check " + files + "--data.on_bad_record skip");
}

TEST_F(OwnFiles, InAnotherEncodingAreRefusedWithTheConversion) {
  ok("tightloop train " + kConfigs +
     "text.yaml' --data.train a.txt --run.name base --tokenizer.vocab_size 300 "
     "--data.seq_len 64 " +
     kSmall);
  const std::string files = kConfigs + "text.yaml' --data.train a.txt,gbk.txt ";
  for (const std::string& command : {"train " + files + "--run.name no", "data check " + files,
                                     "data check " + files + "--json", "prepare " + files + "--output shards",
                                     "prepare " + files + "--tokenizer.vocab_size 257 --output shards",
                                     std::string("tokenizer train a.txt gbk.txt --output tok"),
                                     std::string("tokenizer train a.txt gbk.txt --type bpe --output tok"),
                                     std::string("eval --run runs/base --input gbk.txt")}) {
    const auto outcome = in("tightloop " + command);
    EXPECT_EQ(outcome.exit_code, 3) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "iconv -f GB18030 -t UTF-8 gbk.txt > gbk.utf8.txt"))
        << command << "\n"
        << outcome.output;
  }
  EXPECT_FALSE(fs::exists(folder_ / "runs/no"));
  ok("tightloop data check " + files + "--data.on_bad_record skip");
  ok("tightloop tokenizer train a.txt gbk.txt --vocab-size 300 --on-bad-record skip --output tok");
}

TEST_F(OwnFiles, ThatCannotBeUsedSayWhy) {
  write_file_whole(folder_ / "odd.jsonl", "{\"id\":1,\"body\":\"a\"}\n{\"id\":2,\"body\":\"b\"}\n");
  for (const std::string verb : {"train ", "data check "}) {
    const auto outcome = in("tightloop " + verb + kConfigs + "text.yaml' --data.train odd.jsonl");
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "its fields are 'id', 'body'")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "'instruction' and 'output'")) << outcome.output;
    const std::string listed = "odd.jsonl:2";  // once
    EXPECT_EQ(outcome.output.find(listed), outcome.output.rfind(listed)) << outcome.output;
  }
}

// What a recipe says about files of its own is said about no others.
TEST_F(OwnFiles, AHintIsForTheRecipesOwnMissingFiles) {
  const std::string recipe =
      "data: {source: text, train: ['*.part'], missing: 'Get them there.', seq_len: 16}\n"
      "tokenizer: {vocab_size: 260}\n";
  write_file_whole(folder_ / "own.yaml", recipe);
  const auto missing = in("tightloop data check own.yaml");
  EXPECT_TRUE(contains(missing.output, "Get them there.")) << missing.output;
  write_file_whole(folder_ / "a.part", read_file(folder_ / "a.txt"));
  ok("tightloop data check own.yaml");
  const auto other = in("tightloop data check own.yaml --data.val none.txt");
  EXPECT_TRUE(contains(other.output, "there is no file 'none.txt'")) << other.output;
  EXPECT_FALSE(contains(other.output, "Get them there.")) << other.output;
}

TEST_F(OwnFiles, OfCsvAreConvertedByTheCommandThatIsGiven) {
  std::string rows = "question,answer,source\n";
  for (int i = 0; i < 30; ++i) rows += "\"What, then, is " + std::to_string(i) + "?\",It is it.,me\n";
  write_file_whole(folder_ / "my data.csv", rows);
  const std::string tokens = "--tokenizer.vocab_size 300 ";
  const auto text =
      in("tightloop data check " + kConfigs + "text.yaml' " + tokens + "--data.train 'my data.csv'");
  const auto refused =
      in("tightloop train " + kConfigs + "finetune.yaml' " + tokens + "--data.train 'my data.csv'");
  for (const auto& outcome : {text, refused}) {
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "columns question, answer, source")) << outcome.output;
  }
  const size_t from = refused.output.find("python3 -c"), end = refused.output.find('\n', from);
  ASSERT_NE(from, std::string::npos) << refused.output;
  ok(refused.output.substr(from, end - from));
  const auto made =
      ok("tightloop data check " + kConfigs + "finetune.yaml' " + tokens + "--data.train 'my data.jsonl'");
  EXPECT_TRUE(contains(made.output, "30 records")) << made.output;
  ok("tightloop data check " + kConfigs + "text.yaml' " + tokens +
     "--data.source text --data.train 'my data.csv'");
}

TEST_F(OwnFiles, ATokenizerSaysWhatItLeftOutAndHowFarItGot) {
  write_file_whole(folder_ / "tiny.txt", "a small text\n");
  const auto tiny = ok("tightloop tokenizer train tiny.txt --vocab-size 8192 --output tok");
  EXPECT_TRUE(contains(tiny.output, "tokens, not the 8192 that were asked for")) << tiny.output;
  std::string records;
  for (int i = 0; i < 30; ++i) records += "{\"text\": \"some words of a record\"}\n";
  records += "{\"text\": \"" + std::string(70 << 20, 'x') + "\"}\n";
  write_file_whole(folder_ / "long.jsonl", records);
  const auto lost = in("tightloop tokenizer train long.jsonl --vocab-size 260 --output tok --overwrite");
  EXPECT_EQ(lost.exit_code, 3) << lost.output;
  EXPECT_TRUE(contains(lost.output, "1 of 31 documents, about 100 % of the bytes, cannot")) << lost.output;
  const auto cut = ok(
      "tightloop tokenizer train long.jsonl --vocab-size 260 --on-bad-record skip --output tok --overwrite");
  EXPECT_TRUE(contains(cut.output, "1 too_long")) << cut.output;
  EXPECT_TRUE(contains(cut.output, "long.jsonl:31")) << cut.output;
}

}  // namespace
}  // namespace tightloop
