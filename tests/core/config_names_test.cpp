// Names of settings: those of other programs, with - or _, with or without a section; lists that add up.
#include "core/config.h"
#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

struct NamedPart {
  bool plain = false;
  int64_t steps = 10, blocks = 0;
  double lr = 1;
  std::string precision = "auto", blocks_kept = "none";
  std::vector<std::string> files{"recipe.txt"};

  void describe(Fields& fields) {
    fields.add("plain", plain, "A switch");
    fields.add("steps", steps, "A count").range(1, 1000);
    fields.add("lr", lr, "A rate").range(0, 1);
    fields.add("precision", precision, "A dtype").choices({"auto", "bf16", "fp16"});
    fields.add("keep", blocks_kept, "none, all or a number").on_off("all", "none").alias("use_keep");
    fields.add("files", files, "Some files");
  }
};

struct Named {
  NamedPart part, other;
  Config config;
  Named() {
    static const OtherNames names{{{"train.lr", {"learning_rate"}}, {"train.files", {"train_file"}}},
                                  {{"bf16", "train.precision", "bf16"}},
                                  {{{"warmup_ratio"}, "say train.steps."}},
                                  {{"optimizer", "train"}},
                                  {"train"}};
    config.add_section("train", part, "The part");
    config.add_section("other", other, "Another part");
    config.set_other_names(names);
  }
};

TEST(ConfigNames, OtherProgramsNamesAreTheSameSettings) {
  for (const char* name : {"--learning_rate", "--learning-rate", "--train.learning_rate", "--optimizer.lr",
                           "--lr", "--Learning_Rate", "--optimizer.learning-rate"}) {
    Named named;
    named.config.apply({name, "0.25"});
    EXPECT_EQ(named.part.lr, 0.25) << name;
    EXPECT_EQ(named.other.lr, 1) << name;
  }
  Named named;
  named.config.load_text("learning_rate: 0.5\noptimizer:\n  steps: 3\n", "t");
  EXPECT_EQ(named.part.lr, 0.5) << "in a file too";
  EXPECT_EQ(named.part.steps, 3);
}

TEST(ConfigNames, WhatIsDoneInAnotherWayIsAnswered) {
  Named named;
  const auto message = error_of(ExitCode::kUsage, [&] { named.config.apply({"--warmup-ratio", "0.1"}); });
  EXPECT_NE(message.find("say train.steps."), std::string::npos) << message;
  error_of(ExitCode::kUsage, [&] { named.config.load_text("train: {warmup_ratio: 0.1}", "t"); });
  const auto section = error_of(ExitCode::kUsage, [&] {
    named.config.apply({"--other.learning_rate", "1"});
  });
  EXPECT_NE(section.find("'train.lr'"), std::string::npos) << section;
  EXPECT_TRUE(named.config.is_setting("warmup_ratio"));
  EXPECT_FALSE(named.config.is_setting("warmth"));
}

TEST(ConfigNames, ASettingTwiceInAFileIsAnError) {
  Named named;
  const auto message = error_of(ExitCode::kUsage, [&] {
    named.config.load_text("train:\n  lr: 1\n  learning_rate: 0.5\n", "my.yaml");
  });
  EXPECT_NE(message.find("my.yaml:3"), std::string::npos) << message;
}

TEST(ConfigNames, YesAndNoAreWrittenInManyWays) {
  for (const char* yes : {"true", "True", "TRUE", "1", "yes", "on", "ON"}) {
    Named named;
    named.config.apply({"--train.plain", yes, "--bf16", yes, "--use_keep", yes});
    EXPECT_TRUE(named.part.plain) << yes;
    EXPECT_EQ(named.part.precision, "bf16") << yes;
    EXPECT_EQ(named.part.blocks_kept, "all") << yes;
  }
  Named named;
  named.config.apply({"--train.keep", "1", "--train.precision", "BF16"});
  EXPECT_EQ(named.part.blocks_kept, "1") << "a number, where a number may be meant";
  EXPECT_EQ(named.part.precision, "bf16");
  named.config.apply({"--train.keep", "Off", "--train.precision", "float16"});
  EXPECT_EQ(named.part.blocks_kept, "none");
  EXPECT_EQ(named.part.precision, "fp16");
  error_of(ExitCode::kUsage, [&] { named.config.apply({"--bf16", "false"}); });
}

TEST(ConfigNames, AListOnTheCommandLineAddsUpAndReplacesTheRecipes) {
  using Files = std::vector<std::string>;
  Named named;
  named.config.apply({"--train.files", "a", "--train.steps", "3", "--train_file", "b,c", "--files=d"});
  EXPECT_EQ(named.part.files, (Files{"a", "b", "c", "d"}));
  named.config.apply({"--train.files", "e"});
  EXPECT_EQ(named.part.files, Files{"e"}) << "a new command line begins anew";
  named.config.apply({"--train.files", "[x, 'y z']"});
  EXPECT_EQ(named.part.files, (Files{"x", "y z"})) << "as in a file";
  named.config.apply({"--train.files", "add 1, then 2"});
  EXPECT_EQ(named.part.files, Files{"add 1, then 2"}) << "a sentence";
  named.config.apply({"--train.files", "name=a weight=2, name=b weight=1"});
  EXPECT_EQ(named.part.files, (Files{"name=a weight=2", "name=b weight=1"})) << "entries of a mixture";
}

TEST(ConfigNames, AFileIsNamedAsItIsWrittenWhateverIsInItsName) {
  const TempFolder folder;
  const auto make = [&](const std::string& name) {
    write_file_whole(folder / name, "x");
    return (folder / name).string();
  };
  const std::string comma = make("a, b.txt"), brackets = make("[1].txt"), plain = make("c.txt");
  Named named;
  named.config.apply({"--train.files", comma + "," + plain, "--train.files", brackets});
  EXPECT_EQ(named.part.files, (std::vector<std::string>{comma, plain, brackets}));
  EXPECT_EQ(expand_glob(brackets), std::vector<fs::path>{brackets}) << "no pattern";
}

}  // namespace
}  // namespace tightloop
