#include "program.h"

namespace tightloop::testing {
namespace {

TEST(TrainVerb, AHeldOutPartShorterThanARowIsNamedAtTheStart) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Document " + std::to_string(i) + " says that the cat sat.\n\n";
  write_file_whole(folder / "mine.txt", text);
  const auto outcome = run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR
                                          "/configs/text.yaml' --data.train mine.txt --run.name mine "
                                          "--train.device cpu --train.steps 6 --train.save_steps 0 "
                                          "--tokenizer.vocab_size 300 --data.seq_len 256 --model.width 32 "
                                          "--data.holdout_by hash "
                                          "--model.heads 2 --model.layers 1 --train.micro_batch 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "There will be no evaluation")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "too few for one row of 256")) << outcome.output;
  EXPECT_TRUE(fs::exists(folder / "runs" / "mine" / "checkpoints" / "step-00000006")) << outcome.output;
}

TEST(TrainVerb, ATextWithoutAHeldOutDocumentSaysSo) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(),
          "yes 'the cat sat on the mat' | head -n 200 > mine.txt; tightloop train "
          "'" TIGHTLOOP_SOURCE_DIR
          "/configs/text.yaml' --data.train mine.txt --data.documents file --data.holdout_by hash "
          "--run.name mine --train.device cpu --train.steps 4 "
          "--tokenizer.vocab_size 300 --data.seq_len 32 --model.width 32 --model.heads 2 "
          "--model.layers 1 --train.micro_batch 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "no document is held out")) << outcome.output;
}

TEST(TrainVerb, DivergenceIsNamedOnEverySeed) {
  const TempFolder folder;
  for (const char* warmup : {"0", "1", "50"})
    for (const char* seed : {"1", "2", "3", "4"}) {
      const auto outcome = run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR
                                              "/configs/quickstart.yaml' --train.device cpu --train.lr 1000 "
                                              "--train.steps 12 --train.micro_batch 16 --overwrite "
                                              "--tasks.questions 400 --tasks.held_out 20 --train.seed " +
                                                  std::string(seed) + " --train.warmup_steps " + warmup);
      EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
      EXPECT_TRUE(contains(outcome.output, "learning rate that is too high")) << outcome.output;
    }
}

TEST(TrainVerb, AFolderThatIsRemovedWhileTrainingIsMadeAgain) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "'" TIGHTLOOP_BINARY_DIR "/tightloop' train " + tiny() +
                                              "--train.steps 1000000 --run.name a & child=$!; "
                                              "for i in $(seq 100); do grep -q global_step "
                                              "runs/a/metrics.jsonl 2>/dev/null && break; sleep 0.1; done; "
                                              "rm -r runs/a; kill -INT $child; wait $child");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "was removed while the run trained")) << outcome.output;
  const auto eval = run(folder.path(), "tightloop eval --run runs/a");
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
}

TEST(TrainVerb, CtrlCInALongEvaluationStopsSoonAndIsMadeUpFor) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(),
          "yes 'the cat sat on the mat' | head -n 10000 > val.txt; head -n 200 val.txt > mine.txt; "
          "'" TIGHTLOOP_BINARY_DIR "/tightloop' train '" TIGHTLOOP_SOURCE_DIR
          "/configs/text.yaml' --data.train mine.txt --data.val val.txt --run.name a --train.device cpu "
          "--train.steps 2 --train.eval_batches 0 --tokenizer.vocab_size 300 --data.seq_len 32 "
          "--model.width 32 --model.heads 2 --model.layers 1 --train.micro_batch 1 & child=$!; "
          "for i in $(seq 600); do [ -e runs/a/checkpoints/step-00000002 ] && break; sleep 0.05; done; "
          "kill -INT $child; wait $child");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "Stopped after step 2")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "held-out loss")) << outcome.output;
  const auto resumed = run(folder.path(), "tightloop train --resume runs/a");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(contains(resumed.output, "step 2: held-out loss")) << resumed.output;
}

}  // namespace
}  // namespace tightloop::testing
