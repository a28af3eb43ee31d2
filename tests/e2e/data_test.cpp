#include <algorithm>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

const std::string kText = "'" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' ";

void write_documents(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "Document number " + std::to_string(i * 7919 % 1000) + " says that the cat sat.\n\n";
  write_file_whole(folder / "a.txt", text);
}

TEST(DataVerb, CheckCountsWithoutTraining) {
  const TempFolder folder;
  write_documents(folder);
  const auto outcome = run(folder.path(), "tightloop data check " + kText +
                                              "--data.train a.txt --data.holdout_by hash --data.seq_len 32 "
                                              "--tokenizer.vocab_size 300 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json.at("records"), 300);
  EXPECT_EQ(json.at("bad_records"), 0);
  EXPECT_EQ(json.at("train").at("documents").get<int>() + json.at("val").at("documents").get<int>(), 300);
  EXPECT_GT(json.at("tokens").get<int>(), 300);
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(DataVerb, CheckCountsBadRecordsByKind) {
  const TempFolder folder;
  write_file_whole(
      folder / "a.jsonl",
      "{\"text\": \"fine and long enough to fill a row or two of eight tokens\"}\n{broken\n{\"other\": 1}\n");
  const std::string command = "tightloop data check " + kText +
                              "--data.source jsonl --data.train a.jsonl --data.holdout 0 --data.seq_len 8 "
                              "--tokenizer.vocab_size 257 ";
  const auto outcome = run(folder.path(), command + "--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json.at("bad_records"), 2);
  EXPECT_EQ(json.at("bad").at("malformed_json"), 1);
  const auto strict = run(folder.path(), command + "--data.on_bad_record fail");
  EXPECT_EQ(strict.exit_code, 3) << strict.output;
  EXPECT_TRUE(contains(strict.output, "a.jsonl:2")) << strict.output;
}

TEST(DataVerb, PairsThatAreGeneratedAreCheckedShownAndHashed) {
  const TempFolder folder;
  const std::string toy = "'" TIGHTLOOP_SOURCE_DIR
                          "/configs/translate-toy.yaml' --tasks.questions 300 --tokenizer.vocab_size 100 ";
  const auto checked = run(folder.path(), "tightloop data check " + toy + "--json");
  ASSERT_EQ(checked.exit_code, 0) << checked.output;
  EXPECT_EQ(nlohmann::json::parse(checked.output).at("train").at("documents"), 300);
  const auto shown = run(folder.path(), "tightloop data show " + toy + "--rows 3");
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_TRUE(contains(shown.output, "--- pair 2, ")) << shown.output;
  EXPECT_EQ(run(folder.path(), "tightloop data order " + toy + "--batches 10").exit_code, 0);
  const auto random = run(folder.path(), "tightloop data check " + kText + "--data.source random");
  EXPECT_EQ(random.exit_code, 2) << random.output;
}

TEST(DataVerb, APipeAsDataIsRefused) {
  const TempFolder folder;
  const auto refused =
      run(folder.path(), "mkfifo pipe; timeout 20 '" TIGHTLOOP_BINARY_DIR "/tightloop' data check " + kText +
                             "--data.train pipe; echo code $?");
  EXPECT_TRUE(contains(refused.output, "it is a pipe")) << refused.output;
  EXPECT_TRUE(contains(refused.output, "code 3")) << refused.output;
}

TEST(DataVerb, ShowMarksWhatIsLearned) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop data show '" TIGHTLOOP_SOURCE_DIR
                                          "/configs/quickstart.yaml' --rows 2 --tasks.questions 50");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(std::ranges::count(outcome.output, '['), 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, " =")) << outcome.output;
}

TEST(PrepareVerb, ShardsTrainAsTheRawFilesDo) {
  const TempFolder folder;
  write_documents(folder);
  const std::string sizes =
      "--train.device cpu --train.precision fp32 --train.steps 4 --train.logging_steps 1 --train.eval_steps "
      "0 --data.seq_len 32 --model.width 32 "
      "--model.heads 2 --model.layers 1 --train.micro_batch 4 --tokenizer.vocab_size 300 "
      "--data.holdout_by hash ";
  ASSERT_EQ(
      run(folder.path(), "tightloop train " + kText + sizes + "--data.train a.txt --run.name raw").exit_code,
      0);
  const auto prepared =
      run(folder.path(), "tightloop prepare " + kText + sizes +
                             "--data.train a.txt --tokenizer.path runs/raw/tokenizer --output shards");
  ASSERT_EQ(prepared.exit_code, 0) << prepared.output;
  const auto trained =
      run(folder.path(),
          "tightloop train " + kText + sizes +
              "--data.source shards --data.train shards --tokenizer.path shards/tokenizer --run.name shards");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string weights = "/checkpoints/step-00000004/model.safetensors";
  EXPECT_EQ(read_file(folder / ("runs/raw" + weights)), read_file(folder / ("runs/shards" + weights)));
  EXPECT_EQ(
      run(folder.path(), "tightloop prepare " + kText + "--data.train no.txt --output shards2").exit_code, 3);
}

TEST(DataVerbs, MistakesAreExplained) {
  const TempFolder folder;
  write_file_whole(folder / "empty.txt", "");
  write_file_whole(folder / "tiny.txt", "hello\n");
  const struct {
    std::string command, says;
    int exit_code;
  } kMistakes[] = {
      {"data show " + kText + "--data.train tiny.txt --rows 0", "'0' is not a number from 1 on", 2},
      {"data check " + kText + "--data.train empty.txt", "no text to train a tokenizer on in 'empty.txt'", 3},
      {"data check " + kText + "--data.train tiny.txt", "does not fill one row of data.seq_len = 64", 3},
      {"data check " + kText + "--data.train empty.txt --tokenizer.vocab_size 257",
       "there is no document to learn from.", 3},
      {"data check " + kText + "--data.train tiny.txt --tokenizer.vocab_size 257 --data.holdout_by hash --data.holdout 0.9",
       "there is no document to learn from, for all were held out", 3},
      {"prepare " + kText + "--data.train tiny.txt --output tiny.txt", "cannot make the folder 'tiny.txt", 2},
      {"prepare " + kText + "--data.train empty.txt --tokenizer.vocab_size 257 --output out",
       "no document to learn from", 3},
      {"tokenizer train tiny.txt --output tiny.txt", "cannot make the folder 'tiny.txt'", 2},
      {"tokenizer train tiny.txt --documents pages --output tok", "blank_line", 2},
      {"tokenizer export --tokenizer nowhere --output tok", "'nowhere' to read a tokenizer from", 3}};
  for (const auto& mistake : kMistakes) {
    const auto outcome = run(folder.path(), "tightloop " + mistake.command);
    EXPECT_EQ(outcome.exit_code, mistake.exit_code) << mistake.command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, mistake.says)) << mistake.command << "\n" << outcome.output;
  }
}

TEST(BenchVerb, LoaderAndTokenizerPrintJson) {
  const TempFolder folder;
  write_documents(folder);
  ASSERT_EQ(run(folder.path(), "tightloop tokenizer train a.txt --vocab-size 300 --output tok").exit_code, 0);
  const auto tokenizer = nlohmann::json::parse(
      run(folder.path(), "tightloop bench tokenizer --tokenizer tok --input a.txt --megabytes 0.1 --json")
          .output);
  EXPECT_GT(tokenizer.at("mb_s").get<double>(), 0);
  EXPECT_GT(tokenizer.at("tokens_s").get<double>(), 0);
  const auto loader =
      nlohmann::json::parse(run(folder.path(), "tightloop bench loader '" TIGHTLOOP_SOURCE_DIR
                                               "/configs/quickstart.yaml' --tasks.questions 500 --json")
                                .output);
  EXPECT_GT(loader.at("samples_s").get<double>(), 0);
  EXPECT_EQ(loader.at("allocations_per_batch"), 0);
}

TEST(DataVerb, RenderPrintsWhatTheTemplateMakes) {
  const TempFolder folder;
  fs::create_directory(folder / "model");
  write_file_whole(
      folder.path() / "model" / "tokenizer_config.json",
      R"({"bos_token":"<s>","chat_template":"{{ bos_token }}{% for m in messages %}[{{ m.role }}] )"
      R"({{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"})");
  write_file_whole(folder / "chat.json", R"({"messages":[{"role":"user","content":"Hi"}]})");
  const std::string render = "tightloop data render --template model ";
  EXPECT_EQ(run(folder.path(), render + "< chat.json").output, "<s>[user] Hi\n");
  EXPECT_EQ(run(folder.path(), render + "--add-generation-prompt < chat.json").output,
            "<s>[user] Hi\n[assistant]");
  const auto code = [&](const std::string& command) { return run(folder.path(), command).exit_code; };
  EXPECT_EQ(run(folder.path(), "(printf '\\357\\273\\277'; cat chat.json) | " + render).output,
            "<s>[user] Hi\n");
  const auto several = run(folder.path(), "(cat chat.json; echo; cat chat.json) | " + render);
  EXPECT_EQ(several.exit_code, 3);
  EXPECT_TRUE(contains(several.output, "several records")) << several.output;
  EXPECT_EQ(code(render + "< /dev/null"), 3);
  EXPECT_EQ(code("echo '{}' | " + render), 3);
  EXPECT_EQ(code("tightloop data render --template nothing < chat.json"), 2);
  EXPECT_EQ(code("mkdir -p of_run && cp -r model of_run/tokenizer && touch of_run/config.yaml && "
                 "tightloop data render --template of_run < chat.json > of_run/a && " +
                 render + "< chat.json > of_run/b && cmp of_run/a of_run/b"),
            0);
  EXPECT_EQ(code("tightloop data render < chat.json"), 2);
  write_file_whole(folder / "refuses.jinja", "{{ raise_exception('No.') }}");
  const auto refused = run(folder.path(), "tightloop data render --template refuses.jinja < chat.json");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_TRUE(contains(refused.output, "refuses.jinja, line 1, refuses this: No.")) << refused.output;
}

TEST(DataVerb, ConversationsThatAreCutIntoSeveralRowsAreSaid) {
  const TempFolder folder;
  std::string chats;
  for (int i = 0; i < 40; ++i) {
    std::string question = "why";
    for (int word = 0; word < 60; ++word) question += " word" + std::to_string(word * i % 17);
    chats += R"({"messages":[{"role":"user","content":")" + question +
             R"("},{"role":"assistant","content":"because"}]})" + "\n";
  }
  write_file_whole(folder / "chats.jsonl", chats);
  const std::string recipe =
      "'" TIGHTLOOP_SOURCE_DIR
      "/configs/sft-gsm8k.yaml' --data.train chats.jsonl --data.format chat "
      "--tokenizer.vocab_size 300 --data.seq_len 64 --data.holdout 0 --data.rows pack ";
  const auto checked = run(folder.path(), "tightloop data check " + recipe);
  EXPECT_TRUE(contains(checked.output, "40 longer than a row (cut into several rows: answers stand"))
      << checked.output;
  const auto trained =
      run(folder.path(), "tightloop train " + recipe +
                             "--model.layers 1 --model.width 32 --model.heads 2 --train.micro_batch 8 "
                             "--train.accumulate 1 --train.steps 1 --train.epochs 0 --train.device cpu "
                             "--train.precision fp32 --train.eval_steps 0 --eval.samples 0 --run.name cut");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(contains(trained.output, "40 of 40 documents are longer than a row")) << trained.output;
  EXPECT_TRUE(contains(trained.output, "answers are learned without the questions")) << trained.output;

  const auto file = run(folder.path(), "tightloop data check chats.jsonl");
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_TRUE(contains(file.output, "configs/finetune.yaml --train.init_from MODEL --data.train chats.jsonl"))
      << file.output;
  const auto no_model = run(folder.path(), "tightloop data check '" TIGHTLOOP_SOURCE_DIR
                                           "/configs/finetune.yaml' --data.train chats.jsonl");
  EXPECT_TRUE(contains(no_model.output, "none is named")) << no_model.output;
  const auto inside = run(folder.path(), "tightloop train " + recipe + "--tokenizer.path runs/cut");
  EXPECT_TRUE(contains(inside.output, "Did you mean 'runs/cut/tokenizer'?")) << inside.output;
  const auto missing = run(folder.path(), "tightloop chat --model none.gguf");
  EXPECT_TRUE(contains(missing.output, "there is no file 'none.gguf'")) << missing.output;
}

}  // namespace
}  // namespace tightloop
