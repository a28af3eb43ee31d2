// Tokenizers that the program writes, read by Hugging Face's library.
#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;

const fs::path kPython = testing::python();

// Ids of `tokenizer`, as the program has them, against those that Hugging Face reads out of `file`.
void expect_hugging_face_agrees(const TempFolder& folder, const std::string& tokenizer,
                                const std::string& file) {
  const auto peer = run(folder.path(), "'" + kPython.string() +
                                           "' '" TIGHTLOOP_SOURCE_DIR "/tests/e2e/hugging_face_ids.py' " +
                                           file + " 3000 .");
  ASSERT_EQ(peer.exit_code, 0) << peer.output;
  const std::string encode = "tightloop tokenizer encode --special parse --tokenizer " + tokenizer;
  const auto ours = run(folder.path(), encode + " --lines < strings > ours.lines && " + encode +
                                           " < strings > ours.whole && cmp ours.lines lines.ids && cmp "
                                           "ours.whole whole.ids");
  EXPECT_EQ(ours.exit_code, 0) << tokenizer << ": " << ours.output;
  EXPECT_GT(fs::file_size(folder / "lines.ids"), 100'000u);
}

TEST(TokenizerVerb, HuggingFaceReadsWhatTrainWrites) {
  SKIP_WITHOUT(kPython);
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i)
    text +=
        "The café of number " + std::to_string(i * 7919) + " isn't open; 你好 HTTPServer\t\n  it'll be.\n\n";
  write_file_whole(folder / "a.txt", text);
  for (const std::string pattern : {"gpt2", "cl100k", "o200k", "qwen", "nanochat"}) {
    const auto trained =
        run(folder.path(), "tightloop tokenizer train a.txt --vocab-size 420 --pattern " + pattern +
                               " --special '<|endoftext|>' '<|im_start|>' --output " + pattern);
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    expect_hugging_face_agrees(folder, pattern, pattern + "/tokenizer.json");
  }
}

TEST(TokenizerVerb, HuggingFaceReadsWhatExportWrites) {
  SKIP_WITHOUT(kPython);
  const fs::path gpt2 = testing::shared_data() / "tokenizers/gpt2";
  SKIP_WITHOUT(gpt2);
  const TempFolder folder;
  const auto exported =
      run(folder.path(), "tightloop tokenizer export --tokenizer '" + gpt2.string() + "' --output gpt2");
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  expect_hugging_face_agrees(folder, "'" + gpt2.string() + "'", "gpt2/tokenizer.json");
  expect_hugging_face_agrees(folder, "gpt2", "gpt2/tokenizer.json");
}

}  // namespace
}  // namespace tightloop
