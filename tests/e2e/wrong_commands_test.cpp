// Command lines that are wrong, or half right: the answer is short and has the right name in it.
#include <algorithm>
#include <vector>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;
using testing::tiny;

struct WrongCommand {
  std::string arguments;
  int exit_code;
  std::vector<std::string> words;  // of the answer
};

/// A folder as after the first hour: recipes, a text, a run.
class WrongCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    fs::create_directories(*folder_ / "configs");
    for (const char* name : {"text.yaml", "quickstart.yaml", "finetune.yaml"})
      fs::copy_file(fs::path(TIGHTLOOP_SOURCE_DIR "/configs") / name, *folder_ / "configs" / name);
    write_file_whole(*folder_ / "my.txt", "a text of mine\n");
    write_file_whole(*folder_ / "chats.jsonl", "{\"text\": \"a\"}\n");
    write_file_whole(*folder_ / "talk.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    EXPECT_EQ(
        run(folder_->path(), "tightloop tokenizer train my.txt --vocab-size 262 --output pieces").exit_code,
        0);
    write_file_whole(*folder_ / "twice.yaml", "train:\n  lr: 1e-3\n  learning_rate: 2e-3\n");
    write_file_whole(*folder_ / "slip.yaml", "train:\n  stepz: 5\n");
    write_file_whole(*folder_ / "flat.yaml", "learning_rate: fast\n");
    write_file_whole(*folder_ / "broken.yaml", "train: {steps: [1\nlr: 2");
    const auto outcome =
        run(folder_->path(), "tightloop train " + tiny() + "--train.steps 2 --run.name mine");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static void expect_answers(const std::vector<WrongCommand>& commands) {
    for (const auto& [arguments, exit_code, words] : commands) {
      SCOPED_TRACE("tightloop " + arguments);
      const auto answer = run(folder_->path(), "TIGHTLOOP_NO_CUDA=1 tightloop " + arguments +
                                                   " </dev/null 2>answer >/dev/null; code=$?; cat answer; "
                                                   "(exit $code)");
      EXPECT_EQ(answer.exit_code, exit_code) << answer.output;
      EXPECT_LE(std::ranges::count(answer.output, '\n'), 3) << answer.output;
      for (const auto& word : words) EXPECT_TRUE(contains(answer.output, word)) << word << answer.output;
      for (const char* inner : {"std::", "c10", "at::", "CLI::", "nlohmann", "json.exception", "yaml-cpp",
                                "what()", "terminate", "backtrace", "TEXT", "frame #", "allocator"})
        EXPECT_FALSE(contains(answer.output, inner)) << inner << answer.output;
    }
    EXPECT_FALSE(fs::exists(*folder_ / "runs/text")) << "nothing was begun";
  }

  static TempFolder* folder_;
};

TempFolder* WrongCommands::folder_ = nullptr;

TEST_F(WrongCommands, Verbs) {
  expect_answers({
      {"", 2, {"train", "generate", "--help"}},
      {"trian configs/text.yaml", 2, {"tightloop train?"}},
      {"tran", 2, {"tightloop train?"}},
      {"finetune", 2, {"train configs/finetune.yaml --train.init_from"}},
      {"fine-tune", 2, {"train configs/finetune.yaml --train.init_from"}},
      {"sft", 2, {"train configs/finetune.yaml --train.init_from"}},
      {"pretrain", 2, {"tightloop train RECIPE"}},
      {"resume runs/mine", 2, {"train --resume RUN"}},
      {"sample", 2, {"tightloop generate"}},
      {"generat --prompt x", 2, {"tightloop generate?"}},
      {"inference", 2, {"tightloop generate"}},
      {"evaluate", 2, {"tightloop eval"}},
      {"evl", 2, {"tightloop eval?"}},
      {"tokenize", 2, {"tokenizer encode"}},
      {"tokenizer trian", 2, {"tightloop tokenizer train?"}},
      {"tokenizer", 2, {"train", "encode"}},
      {"convert", 2, {"tightloop export"}},
      {"help", 2, {"tightloop --help"}},
      {"dance", 2, {"--help", "doctor"}},
      {"configs/text.yaml", 2, {"tightloop train configs/text.yaml"}},
      {"my.txt", 2, {"tightloop train configs/text.yaml --data.train my.txt"}},
      {"--train.steps 5 train configs/text.yaml", 2, {"before --train.steps", "tightloop train RECIPE"}},
  });
}

TEST_F(WrongCommands, Recipes) {
  expect_answers({
      {"train", 2, {"configs/text.yaml --data.train", "--resume"}},
      {"train my.txt", 2, {"not a recipe", "train configs/text.yaml --data.train my.txt"}},
      {"train chats.jsonl", 2, {"--data.train chats.jsonl --data.source jsonl"}},
      {"train configs/txt.yaml", 2, {"no recipe", "'configs/text.yaml'"}},
      {"train configs/quite/another.yaml", 2, {"no recipe", " in '/"}},
      {"train configs/text.yaml --data.train my.txt --run.name ../esc", 2, {"run.name", "--run.dir"}},
      {"train configs/text.yaml --data.train my.txt --run.name ..", 2, {"run.name"}},
      {"train quickstrat", 2, {"'configs/quickstart.yaml'"}},
      {"train runs/mine", 2, {"train --resume runs/mine"}},
      {"train configs", 2, {"is a folder", "--data.train"}},
      {"train configs/text.yaml my.txt", 2, {"--data.train my.txt"}},
      {"train --config configs/text.yaml", 2, {"tightloop train configs/text.yaml"}},
      {"train configs/text.yaml", 2, {"data.train"}},
      {"train twice.yaml", 2, {"twice.yaml:3", "second time"}},
      {"train slip.yaml", 2, {"slip.yaml:2", "'train.steps'"}},
      {"train flat.yaml", 2, {"flat.yaml:1", "number"}},
      {"train broken.yaml", 2, {"broken.yaml:", "not YAML"}},
      {"train --resume my.txt", 2, {"my.txt", "not a run"}},
      {"train --resume runs/main", 2, {"'runs/mine'"}},
      {"train --resume configs", 2, {"not a run"}},
      {"train --resume", 2, {"--resume needs a value"}},
      {"train configs/text.yaml --resume runs/mine", 2, {"Not both"}},
      {"data check", 2, {"name a recipe", "configs/text.yaml"}},
      {"fit", 2, {"name a recipe"}},
      {"prepare configs/text.yaml", 2, {"--output is required"}},
      {"model show gpt3", 2, {"gpt2-124m"}},
  });
}

TEST_F(WrongCommands, Settings) {
  const std::string train = "train configs/text.yaml --data.train my.txt ";
  expect_answers({
      {train + "--train.step 5", 2, {"'train.steps'"}},
      {train + "--run.name mine@2", 2, {"a run cannot be called 'mine@2'"}},
      {train + "--train.steps=abc", 2, {"--train.steps", "'abc'", "integer"}},
      {train + "--train.steps -1", 2, {"--train.steps", "0 to"}},
      {train + "--num_train_epochs many", 2, {"--num_train_epochs", "number"}},
      {train + "--epochs 2 --steps 5", 2, {"--train.steps and --train.epochs"}},
      {train + "--train.lr fast", 2, {"--train.lr", "number"}},
      {train + "--train.precision fp4", 2, {"bf16"}},
      {train + "--train.device cpu --train.precision fp8", 5, {"fp8", "bf16"}},
      {train + "--train.schedule cosin", 2, {"Did you mean 'cosine'?"}},
      {train + "--train.deterministic maybe", 2, {"true or false"}},
      {train + "--model.family lama", 2, {"'llama'"}},
      {train + "--model.preset gpt2", 2, {"gpt2-124m"}},
      {train + "--model.learning_rate 1", 2, {"'train.lr'"}},
      {train + "--trian.steps 5", 2, {"'train.steps'"}},
      {train + "--learning_rat 1", 2, {"--train.lr"}},
      {train + "--learning_rate fast", 2, {"--learning_rate", "number"}},
      {train + "--min_learning_rate 1e-5", 2, {"--train.min_lr 0.1"}},
      {train + "--global_batch_size 64", 2, {"train.micro_batch", "train.accumulate"}},
      {train + "--output_dir out/x", 2, {"--run.dir", "--run.name"}},
      {train + "--betas 0.9", 2, {"train.beta1", "train.beta2"}},
      {train + "--vocab_size 100", 2, {"tokenizer.vocab_size", "model.vocab_size"}},
      {train + "--lora_dropout 0.1", 2, {"dropout"}},
      {train + "--use_lora true", 2, {"lora.rank"}},
      {train + "--bf16 false", 2, {"train.precision"}},
      {train + "--packing true", 2, {"--data.rows pack"}},
      {train + "--resume_from_checkpoint x", 2, {"--resume runs/NAME"}},
      {train + "--report_to wandb", 2, {"metrics.jsonl", "--wandb.mode online"}},
      {train + "--wandb true", 2, {"--wandb.mode online"}},
      {train + "--log.wandb.mode onlin", 2, {"Did you mean 'online'"}},
      {train + "--checkpoint.keep x", 2, {"'keep_checkpoints'"}},
      {train + "--wandb.mode onlin", 2, {"Did you mean 'online'"}},
      {train + "--gpus 2", 2, {"torchrun"}},
      {"train --resume runs/mine --overwrite", 2, {"not both"}},
      {"runs mine other", 2, {"tightloop runs --compare mine other"}},
      {"runs --compare mine", 2, {"--compare takes two runs, not 1"}},
      {train + "--model.width 65 --model.heads 1 --model.head_size 0",
       2,
       {"model.width 65 over model.heads 1"}},
      {"train configs/text.yaml --dataset my.txt", 2, {"data.train"}},
      {"train configs/text.yaml --data.train", 2, {"--data.train needs a value"}},
      {"train configs/text.yaml --data.train --run.name x", 2, {"--data.train needs a value"}},
      {"train configs/text.yaml --data.train nowhere.txt", 3, {"no file 'nowhere.txt'", "in the folder"}},
      {"train configs/text.yaml --data.train 'no*.txt'", 3, {"no file matches 'no*.txt'"}},
      {train + "--run.name my run", 2, {"--run.name 'my run'"}},
      {train + "-lr 0.1", 2, {"--train.lr"}},
      {train + "--train.init_from nowhere", 2, {"nowhere"}},
      {train + "--train.init_from runs/mine --model.layers 3", 2, {"model.layers: was 1, is 3"}},
      {"train configs/finetune.yaml --data.train talk.jsonl", 2, {"--train.init_from", "configs/text.yaml"}},
      {train + "--train.init_from runs/mine --tokenizer.path pieces", 2, {"another tokenizer than 'pieces'"}},
      {train + "--train.device cuda", 5, {"cpu or auto"}},
      {train + "--model.width 1000000 --model.layers 100 --model.heads 10", 5, {"memory"}},
      {"generate --train.steps 5", 2, {"takes no settings"}},
      {"config trainn", 2, {"trainn"}},
  });
}

TEST_F(WrongCommands, Options) {
  expect_answers({
      {"generate --run runs/mine --max_new_tokens 5 --prompt x", 2, {"--max-tokens"}},
      {"generate --max-length 5", 2, {"--max-tokens"}},
      {"generate --temp 1", 2, {"--temperature"}},
      {"generate --temprature 1", 2, {"--temperature"}},
      {"generate --num_samples 2", 2, {"--n?"}},
      {"generate --checkpoint runs/mine", 2, {"--run?"}},
      {"generate --text x", 2, {"--prompt?"}},
      {"generate --n abc --prompt x", 2, {"--n", "abc"}},
      {"generate --seed abc --prompt x", 2, {"--seed", "abc", "not a number"}},
      {"generate --temperature -1", 2, {"--temperature", "-1"}},
      {"generate --precision fp8", 2, {"--precision", "fp32"}},
      {"generate --prompt", 2, {"--prompt needs a value"}},
      {"generate --prompt --run runs/mine", 2, {"--prompt needs a value"}},
      {"generate --run runs/mine --prompt Once upon a time", 2, {"quotes", "'Once upon a time'"}},
      {"generate runs/mine", 2, {"--run runs/mine"}},
      {"generate Hello there", 2, {"--prompt 'Hello there'"}},
      {"generate --run runs/mien --prompt x", 2, {"'runs/mine'"}},
      {"generate --run runs/mine --run runs/mine --prompt x", 2, {"more than once"}},
      {"generate --run my.txt --prompt x", 2, {"my.txt"}},
      {"generate --run runs/mine --device cuda --prompt x", 5, {"cpu or auto"}},
      {"generate --run runs/mine --device gpu --prompt x", 2, {"cuda"}},
      {"chat --system You are kind", 2, {"quotes", "'You are kind'"}},
      {"chat --max_length 5", 2, {"--max-tokens"}},
      {"eval --data my.txt", 2, {"--input?"}},
      {"eval --run runs/mine --input nowhere.txt", 3, {"nowhere.txt"}},
      {"eval --run runs/mine --questions nowhere.jsonl", 3, {"nowhere.jsonl"}},
      {"export --run runs/mine --output hf", 2, {"--to?"}},
      {"export --run runs/mine", 2, {"--to is required"}},
      {"average --run runs/mine --output runs/a", 2, {"--train.keep_checkpoints"}},
      {"average --run runs/mine --to runs/a", 2, {"--output?"}},
      {"average --run runs/mine --output runs/mine", 2, {"Choose another --output"}},
      {"average --run runs/mine --output runs/mine@best", 2, {"a name without it"}},
      {"tokenizer train my.txt --vocab 300", 2, {"--vocab-size?"}},
      {"tokenizer encode --tokenizer nowhere", 3, {"nowhere"}},
      {"translate --run runs/mine --beam-size 3", 2, {"--beam?"}},
      {"bleu --reference a --hyp b", 2, {"--ref?"}},
      {"doctor --yaml", 2, {"doctor"}},
  });
}

TEST_F(WrongCommands, Checkpoints) {
  expect_answers({
      {"checkpoint", 2, {"ls", "verify", "diff", "prune"}},
      {"checkpoint list runs/mine", 2, {"tightloop checkpoint"}},
      {"checkpoint ls runs/mien", 2, {"'runs/mine'"}},
      {"checkpoint ls configs", 2, {"not a run with checkpoints"}},
      {"checkpoint verify runs/mine --step 7", 4, {"step 7", "2"}},
      {"checkpoint verify runs/mine@2 --step 2", 2, {"--step", "one of them"}},
      {"checkpoint diff runs/mine@2", 2, {"B"}},
      {"checkpoint diff runs/mine@1 runs/mine@2", 4, {"there are: 2"}},
      {"checkpoint prune runs/mine", 2, {"--keep is required"}},
      {"checkpoint prune runs/mine --keep 0", 2, {"--keep", "from 1 on"}},
      {"checkpoint prune runs/mine@2 --keep 1", 2, {"name the run"}},
      {"generate --run runs/mine@first --prompt x", 2, {"best, last or a step"}},
      {"generate --run runs/mine@7 --prompt x", 4, {"no checkpoint of step 7", "there are: 2"}},
      {"generate --run nobody@best --prompt x", 2, {"nobody@best"}},
      {"export --run runs/mine@2 --step 2 --to hf", 2, {"--step", "one of them"}},
      {"train configs/quickstart.yaml --train.best_by bleu --run.name no", 2, {"train.best_by", "seq2seq"}},
      {"train configs/quickstart.yaml --train.best_by los --run.name no", 2, {"'loss'"}},
  });
}

// What is only written in another way happens.
TEST_F(WrongCommands, HalfRightOnesAreUnderstood) {
  const auto in = [&](const std::string& command) { return run(folder_->path(), "tightloop " + command); };
  const auto shown = in(
      "config --yaml configs/text.yaml --learning_rate 0.25 --max-steps 7 --train.batch_size 3 --model.dim "
      "64 "
      "--optimizer.weight_decay 0.5 --gradient_accumulation_steps=2 --num_attention_heads 4 --block_size 33 "
      "--use_liger_kernels=True --use_gradient_checkpointing=1 --bf16 --dropout 0.125 --seed 9 --wd=0.5 "
      "--warmup 11 --deterministic --model.layers 3 --model.preset gpt2-124m");
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* line :
       {"lr: 0.25", "steps: 7", "micro_batch: 3", "width: 64", "weight_decay: 0.5", "accumulate: 2",
        "heads: 4", "seq_len: 33", "fused_head: \"on\"", "gradient_checkpointing: \"all\"",
        "precision: \"bf16\"", "dropout: 0.125", "seed: 9", "warmup_steps: 11", "deterministic: true",
        "layers: 3", "family: \"gpt2\""})
    EXPECT_TRUE(contains(shown.output, std::string("  ") + line + "\n")) << line << shown.output;
  const auto section = in("config train");
  EXPECT_TRUE(contains(section.output, "--train.steps")) << section.output;
  const auto made = in("generate --run mine --prompt 'reverse a =' --max_tokens 2 --top_k 3");
  EXPECT_EQ(made.exit_code, 0) << made.output;
}

TEST_F(WrongCommands, FilesOfAListMayFollowEachOther) {
  const auto in = [&](const std::string& command) { return run(folder_->path(), "tightloop " + command); };
  for (const char* command :
       {"config --yaml configs/text.yaml --data.train a.txt b.txt c.txt --run.name x",
        "config --yaml --data.train a.txt b.txt c.txt configs/text.yaml --run.name x",
        "config --yaml --data.train a.txt --run.name x configs/text.yaml --train_file b.txt c.txt"}) {
    const auto outcome = in(command);
    EXPECT_TRUE(contains(outcome.output, "train: [\"a.txt\", \"b.txt\", \"c.txt\"]")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "name: \"x\"")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "holdout_by: \"auto\"")) << "the recipe is read" << outcome.output;
  }
}

TEST_F(WrongCommands, ARunWhoseFilesMovedSaysHowToNameThem) {
  const auto in = [&](const std::string& command) { return run(folder_->path(), "tightloop " + command); };
  std::string text;
  for (int i = 0; i < 300; ++i) text += "paragraph " + std::to_string(i) + " of a text\n\n";
  write_file_whole(*folder_ / "here.txt", text);
  const auto trained =
      in("train configs/text.yaml --data.train here.txt --train.device cpu --model.layers 1 --model.width 16 "
         "--model.heads 2 --data.seq_len 16 --tokenizer.vocab_size 257 --batch_size 2 --max_steps 2 "
         "--train.warmup_steps 0 --train.lr 0 --run.name moved");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(contains(trained.output, "train.lr is 0")) << trained.output;
  fs::rename(*folder_ / "here.txt", *folder_ / "there.txt");
  for (const char* command : {"eval --run moved", "train --resume moved --train.steps 4"}) {
    const auto lost = in(command);
    EXPECT_EQ(lost.exit_code, 3) << lost.output;
    EXPECT_TRUE(contains(lost.output, "--data.train NEWPATH")) << lost.output;
    EXPECT_TRUE(contains(lost.output, "in the folder")) << lost.output;
    const auto found = in(std::string(command) + " --data.train there.txt");
    EXPECT_EQ(found.exit_code, 0) << found.output;
  }
}

TEST_F(WrongCommands, OptionsWithoutEffectSaySo) {
  const auto in = [&](const std::string& command) { return run(folder_->path(), "tightloop " + command); };
  const auto held_out = in("eval --run mine --window 8 --temperature 0.5 --limit 2");
  EXPECT_EQ(held_out.exit_code, 0) << held_out.output;
  EXPECT_TRUE(contains(held_out.output, "--window has no effect here")) << held_out.output;
  EXPECT_TRUE(contains(held_out.output, "--temperature has no effect here")) << held_out.output;
  EXPECT_FALSE(contains(held_out.output, "--limit has")) << held_out.output;
  const auto text = in("eval --run mine --input my.txt --limit 3 --samples 2");
  EXPECT_TRUE(contains(text.output, "--limit has no effect here")) << text.output;
  EXPECT_TRUE(contains(text.output, "--samples has no effect here")) << text.output;
}

}  // namespace
}  // namespace tightloop
