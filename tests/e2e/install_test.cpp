// What 'cmake --install' lays down, used by programs outside of the tree.
#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

const fs::path kLibrary = TIGHTLOOP_BINARY_DIR "/libtightloop_core.so";  // sanitizers build none

const std::string kInstall = "cmake --install '" TIGHTLOOP_BINARY_DIR "' --prefix \"$PWD/prefix\" > log";
const std::string kTry = "'" TIGHTLOOP_SOURCE_DIR "/tools/try_examples' --build '" TIGHTLOOP_BINARY_DIR "' ";

TEST(Install, LoaderExampleNeedsNoTorch) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto tried = run(folder.path(), "TIGHTLOOP_TORCH=/nowhere " + kTry + "loader");
  EXPECT_EQ(tried.exit_code, 0) << tried.output;
  EXPECT_TRUE(contains(tried.output, "loader: resumed at batch 199, the same bits")) << tried.output;
  const auto needs = run(folder.path(), kInstall + " && ldd prefix/lib/libtightloop_data.so");
  EXPECT_EQ(needs.exit_code, 0) << needs.output;
  EXPECT_TRUE(contains(needs.output, "libtightloop_core")) << needs.output;
  EXPECT_FALSE(contains(needs.output, "torch") || contains(needs.output, "not found")) << needs.output;
}

TEST(Install, SaysWhichTorchIsMissing) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto tried =
      run(folder.path(), kInstall + " && cmake -S '" TIGHTLOOP_SOURCE_DIR
                                    "/examples/fast_loop' -B b -G Ninja -DCMAKE_PREFIX_PATH=\"$PWD/prefix\" "
                                    "-DTIGHTLOOP_TORCH=/nowhere");
  EXPECT_NE(tried.exit_code, 0) << tried.output;
  EXPECT_TRUE(contains(tried.output, "Tightloop needs torch")) << tried.output;
  EXPECT_TRUE(contains(tried.output, "/nowhere has no")) << tried.output;
}

TEST(Install, FastLoopExampleLearnsAndThePagesPiecesCompile) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto tried = run(folder.path(), kTry + "fast_loop docs");
  EXPECT_EQ(tried.exit_code, 0) << tried.output;
  EXPECT_TRUE(contains(tried.output, "fast_loop: loss ")) << tried.output;
  EXPECT_TRUE(contains(tried.output, " in 40 steps, 4 syncs")) << tried.output;
  EXPECT_TRUE(contains(tried.output, " pieces compiled")) << tried.output;
}

TEST(Install, FineTuneExampleUsesEveryLibrary) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto tried = run(folder.path(), kTry + "finetune_hf");
  EXPECT_EQ(tried.exit_code, 0) << tried.output;
  EXPECT_TRUE(contains(tried.output, "finetune_hf: loss ")) << tried.output;
  EXPECT_TRUE(contains(tried.output, " in 60 steps, exported")) << tried.output;
}

TEST(Install, OwnFamilyExampleIsTrainedByTheTrainer) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto tried = run(folder.path(), kTry + "own_family");
  EXPECT_EQ(tried.exit_code, 0) << tried.output;
  EXPECT_TRUE(contains(tried.output, "The loop is tight and the model is small.")) << tried.output;
  EXPECT_TRUE(contains(tried.output, "own_family: loss ")) << tried.output;
}

TEST(Install, ProgramRunsFromAPrefixThatWasMoved) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto installed = run(folder.path(), kInstall + " && mv prefix moved");
  ASSERT_EQ(installed.exit_code, 0) << installed.output;
  const auto recipe = run(folder.path(), "moved/bin/tightloop config configs/quickstart.yaml --section data");
  EXPECT_EQ(recipe.exit_code, 0) << recipe.output;
  EXPECT_TRUE(contains(recipe.output, "--data.source \"tasks\"")) << recipe.output;
  const auto without =
      run(folder.path(),
          "touch moved/bin/tightloop-setup; TIGHTLOOP_PLUGIN_DIR=/nowhere moved/bin/tightloop doctor");
  EXPECT_TRUE(contains(without.output, "run tightloop-setup")) << without.output;
  if (!fs::exists(TIGHTLOOP_BINARY_DIR "/libtightloop_parquet.so")) return;
  const auto doctor = run(folder.path(), "moved/bin/tightloop doctor");
  EXPECT_TRUE(contains(doctor.output, "parquet   usable")) << doctor.output;
}

TEST(Install, HeadersAreThoseThatTheFaceReaches) {
  SKIP_WITHOUT(kLibrary);
  const TempFolder folder;
  const auto installed = run(folder.path(), kInstall);
  ASSERT_EQ(installed.exit_code, 0) << installed.output;
  size_t headers = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "prefix/include/tightloop")) {
    if (!entry.is_regular_file()) continue;
    ++headers;
    const std::string text = read_file(entry.path());
    EXPECT_FALSE(contains(text, "#include \"")) << entry.path() << " includes what another project may have";
    EXPECT_FALSE(contains(text, "#include <tightloop/cli/") || contains(text, "#include <CLI/"))
        << entry.path();
  }
  EXPECT_GT(headers, 50u);
  EXPECT_LT(headers, 140u) << "the face is to stay small";
}

TEST(Install, BashCompletesVerbsOptionsAndSettings) {
  const TempFolder folder;
  const std::string script =
      "tightloop completion bash > c && cat > t <<'END'\nsource ./c\ntry() { COMP_WORDS=(\"$@\"); "
      "COMP_CWORD=$(($# - 1)); _tightloop; echo \"$* = ${COMPREPLY[*]}\"; }\n"
      "try tightloop tra\ntry tightloop bench ste\ntry tightloop export --dtype b\n"
      "try tightloop train --train.warmup_s\ntry tightloop train --model.family gp\n"
      "try tightloop doctor --train.l\ntry tightloop train ./t\nEND\nbash t";
  const auto tried = run(folder.path(), script);
  EXPECT_EQ(tried.exit_code, 0) << tried.output;
  for (const std::string line : {"tightloop tra = train translate\n", "bench ste = step\n",
                                 "--dtype b = bf16\n", "--train.warmup_s = --train.warmup_steps",
                                 "--model.family gp = gpt2\n", "doctor --train.l = \n", "train ./t = ./t\n"})
    EXPECT_TRUE(contains(tried.output, line)) << line << "\n" << tried.output;
}

TEST(Install, ManualAndScriptsKnowEveryVerbAndSetting) {
  const TempFolder folder;
  const auto made =
      run(folder.path(), "for what in bash zsh fish man; do tightloop completion $what > $what; done");
  ASSERT_EQ(made.exit_code, 0) << made.output;
  for (const std::string what : {"bash", "zsh", "fish", "man"}) {
    std::string text = read_file(folder / what);
    std::erase(text, '\\');
    for (const std::string word : {"doctor", "tokenizer", "data.seq_len", "lora.rank", "train.accumulate"})
      EXPECT_TRUE(contains(text, word)) << what << " has no " << word;
  }
}

}  // namespace
}  // namespace tightloop
