#include <gtest/gtest.h>

#include "core/files.h"
#include "support.h"
#include "train/run/run_tokenizer.h"

namespace tightloop {
namespace {

/// Tokens of "zzzzzzzz" where a text of many b is followed by one of many z.
size_t tokens_of_later_text(int64_t train_bytes, int64_t document_bytes, const char* between) {
  const testing::TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "bbbbbbbb ";
  text += between;
  for (int i = 0; i < 200; ++i) text += "zzzzzzzz ";
  write_file_whole(folder.path() / "a.txt", text);
  Recipe recipe;
  recipe.data.source = DataSource::kText, recipe.data.holdout = 0;
  recipe.data.train = {(folder.path() / "a.txt").string()};
  recipe.tokenizer.vocab_size = 266;
  recipe.tokenizer.train_bytes = train_bytes, recipe.tokenizer.document_bytes = document_bytes;
  return make_tokenizer(recipe)->encode("zzzzzzzz").size();
}

TEST(TokenizerLimits, SayHowMuchTextIsRead) {
  EXPECT_LT(tokens_of_later_text(0, 0, "\n\n"), 8u) << "all of it";
  EXPECT_EQ(tokens_of_later_text(1000, 0, "\n\n"), 8u) << "the first document alone";
  EXPECT_LT(tokens_of_later_text(0, 1000, "\n\n"), 8u) << "the beginning of both";
  EXPECT_EQ(tokens_of_later_text(0, 1000, "é"), 8u) << "the beginning of one";
}

}  // namespace
}  // namespace tightloop
