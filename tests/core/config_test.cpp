#include "core/config.h"

#include <fstream>

#include "support.h"

namespace tightloop {

enum class Mode { kFast, kSlow };
template <>
inline constexpr auto kChoices<Mode> = std::to_array<Choice<Mode>>({{Mode::kFast, "fast", "in a hurry"},
                                                                    {Mode::kSlow, "slow"}});

namespace {

using testing::error_of;
using testing::TempFolder;

struct Part {
  bool flag = false;
  int64_t steps = 10;
  double rate = 3e-4;
  Mode mode = Mode::kFast;
  std::string shape = "round";
  std::vector<std::string> files{"a", "b"};

  void describe(Fields& fields) {
    fields.add("flag", flag, "A switch");
    fields.add("steps", steps, "A count").range(1, 1000);
    fields.add("rate", rate, "A rate").range(0, 1).alias("rate-of-it");
    fields.add("mode", mode, "A mode");
    fields.add("shape", shape, "A shape").choices({"round", "square"});
    fields.add("files", files, "Some files");
  }
};

struct Bound {
  Part part, other;
  Config config;
  Bound() {
    config.add_section("part", part, "The part");
    config.add_section("other", other, "The other part");
  }
};

TEST(Config, ReadsYamlIntoTheStruct) {
  Bound bound;
  bound.config.load_text("part:\n  flag: yes\n  steps: 1_000\n  rate: 1e-2\n  files: [x, 'y z']\nother:\n",
                         "t");
  EXPECT_TRUE(bound.part.flag);
  EXPECT_EQ(bound.part.steps, 1000);
  EXPECT_DOUBLE_EQ(bound.part.rate, 1e-2);
  EXPECT_EQ(bound.part.files, (std::vector<std::string>{"x", "y z"}));
  EXPECT_EQ(bound.other.steps, 10) << "a section without keys keeps its defaults";
}

TEST(Config, ASettingWithoutAValueIsRefusedAtTheTopAndInItsSection) {
  for (const char* yaml : {"part:\n  steps:\n", "part.steps:\n", "rate-of-it:\n", "prat:\n"}) {
    Bound bound;
    error_of(ExitCode::kUsage, [&] { bound.config.load_text(yaml, "t"); });
  }
}

TEST(Config, AChoiceIsAnEnumWithATable) {
  Bound bound;
  const Field& field = *bound.config.field("part.mode");
  EXPECT_EQ(field.kind(), "one of fast, slow");
  EXPECT_EQ(field.help(), "A mode; fast: in a hurry");
  EXPECT_EQ(field.default_text(), "\"fast\"");
  bound.config.set("part.mode", "Slow");
  EXPECT_EQ(bound.part.mode, Mode::kSlow);
  EXPECT_EQ(field.text(), "\"slow\"");
  EXPECT_EQ(name_of(bound.part.mode), "slow");
  EXPECT_EQ(choice_named<Mode>("fast"), Mode::kFast);
  EXPECT_EQ(choice_named<Mode>("medium"), std::nullopt);
}

TEST(Config, CommandLineTakesBothForms) {
  Bound bound;
  bound.config.apply({"--part.steps", "7", "--other.mode=slow", "--part.files=p,q", "--rate-of-it", "0.5"});
  EXPECT_EQ(bound.part.steps, 7);
  EXPECT_EQ(bound.other.mode, Mode::kSlow);
  EXPECT_EQ(bound.part.files, (std::vector<std::string>{"p", "q"}));
  EXPECT_DOUBLE_EQ(bound.part.rate, 0.5);
}

struct Sizes {
  std::string preset;
  int64_t layers = 1, width = 1;
  void describe(Fields& fields) {
    fields.add("preset", preset, "Sizes by name").presets({{"large", {{"layers", "20"}, {"width", "50"}}}});
    fields.add("layers", layers, "Layers").range(1, 100);
    fields.add("width", width, "Width").range(1, 100);
  }
};

TEST(Config, APresetSetsItsFieldsAndSettingsOfTheUserWin) {
  Sizes sizes;
  Config config;
  config.add_section("model", sizes, "Sizes");
  config.load_text("model:\n  layers: 3\n  preset: large\n", "t");
  EXPECT_EQ(sizes.layers, 3) << "whatever the order in the file";
  EXPECT_EQ(sizes.width, 50);
  config.apply({"--model.preset", "large", "--model.width", "7"});
  EXPECT_EQ(sizes.layers, 20);
  EXPECT_EQ(sizes.width, 7);
  config.apply({"--model.width", "9", "--model.preset", "large"});
  EXPECT_EQ(sizes.width, 9) << "a single setting wins, in whatever order";
  config.apply({"--model.width", "7"});

  Sizes again;
  Config copy;
  copy.add_section("model", again, "Sizes");
  copy.load_text(config.to_yaml(), "t");
  EXPECT_EQ(again.width, 7);
  const auto message = error_of(ExitCode::kUsage, [&] { config.apply({"--model.preset", "huge"}); });
  EXPECT_NE(message.find("large"), std::string::npos) << message;
}

TEST(Config, IntegersMayBeWrittenAsPeopleDo) {
  Bound bound;
  bound.config.apply({"--part.steps", "1e2"});
  EXPECT_EQ(bound.part.steps, 100);
  for (const char* bad : {"1.5", "1e", "", "0x10", "12a", "nan"}) {
    error_of(ExitCode::kUsage, [&] { bound.config.set("part.steps", bad); });
  }
  EXPECT_EQ(bound.part.steps, 100) << "a refused value changes nothing";
}

TEST(Config, AnUnknownKeyNamesTheNearest) {
  Bound bound;
  const auto message = error_of(ExitCode::kUsage, [&] { bound.config.apply({"--part.stepz", "1"}); });
  EXPECT_NE(message.find("'part.steps'"), std::string::npos) << message;
  struct Kept {
    int64_t best = 0, newest = 0, seeds = 0;
    void describe(Fields& fields) {
      fields.add("keep_newest", newest, "A count");
      fields.add("keep_best", best, "A count");
      fields.add("weep", seeds, "Another");
    }
  } kept;
  bound.config.add_section("kept", kept, "What is kept");
  const auto begun = error_of(ExitCode::kUsage, [&] { bound.config.set("kept.keep", "1"); });
  EXPECT_NE(begun.find("'kept.keep_best'"), std::string::npos) << begun;
  const auto far = error_of(ExitCode::kUsage, [&] { bound.config.set("completely.different", "1"); });
  EXPECT_EQ(far.find("Did you mean"), std::string::npos) << far;
}

TEST(Config, ErrorsInAFileNameTheLine) {
  Bound bound;
  const auto unknown = error_of(ExitCode::kUsage,
                                [&] { bound.config.load_text("part:\n  flag: 1\n  ratee: 1\n", "my.yaml"); });
  EXPECT_NE(unknown.find("my.yaml:3"), std::string::npos) << unknown;
  const auto value =
      error_of(ExitCode::kUsage, [&] { bound.config.load_text("part:\n  steps: 0\n", "my.yaml"); });
  EXPECT_NE(value.find("my.yaml:2"), std::string::npos) << value;
  EXPECT_NE(value.find("1 to 1000"), std::string::npos) << value;
  const auto broken =
      error_of(ExitCode::kUsage, [&] { bound.config.load_text("part: {a: [1\nb: 2", "my.yaml"); });
  EXPECT_NE(broken.find("my.yaml:"), std::string::npos) << broken;
  const auto tab =
      error_of(ExitCode::kUsage, [&] { bound.config.load_text("part:\n\tsteps: 5\n", "my.yaml"); });
  EXPECT_NE(tab.find("my.yaml:2: a tab"), std::string::npos) << tab;
  error_of(ExitCode::kUsage, [&] { bound.config.load_text("- a\n", "my.yaml"); });
  error_of(ExitCode::kUsage, [&] { bound.config.load_text("part: 3\n", "my.yaml"); });
  for (const char* yaml :
       {"? [a]\n: {steps: 2}\n", "part:\n  ? [a]\n  : 2\n", "part:\n  files: [[a], b]\n"}) {
    const auto no_text = error_of(ExitCode::kUsage, [&] { bound.config.load_text(yaml, "my.yaml"); });
    EXPECT_NE(no_text.find("my.yaml:"), std::string::npos) << no_text;
  }
  error_of(ExitCode::kUsage, [&] { bound.config.load_text("part: {steps: [1]}\n", "my.yaml"); });
}

TEST(Config, ChoicesAreChecked) {
  Bound bound;
  const auto message = error_of(ExitCode::kUsage, [&] { bound.config.set("part.mode", "medium"); });
  EXPECT_NE(message.find("fast, slow"), std::string::npos) << message;
}

TEST(Config, MissingValueAndStrayWordAreRefused) {
  Bound bound;
  error_of(ExitCode::kUsage, [&] { bound.config.apply({"--part.steps"}); });
  error_of(ExitCode::kUsage, [&] { bound.config.apply({"steps"}); });
}

TEST(Config, YamlRoundTripKeepsEveryBit) {
  Bound bound;
  bound.part.rate = 0.1 + 0.2;
  bound.part.mode = Mode::kSlow;
  bound.part.files = {"with \"quotes\"", "tab\t", "ü", ""};
  bound.other.flag = true;
  Bound again;
  again.config.load_text(bound.config.to_yaml(), "copy");
  EXPECT_EQ(again.part.rate, bound.part.rate);
  EXPECT_EQ(again.part.files, bound.part.files);
  EXPECT_TRUE(again.other.flag);
  EXPECT_EQ(again.config.to_yaml(), bound.config.to_yaml());
}

TEST(Config, TextShowsOneSection) {
  Bound bound;
  EXPECT_EQ(bound.config.to_text("part").find("other.steps"), std::string::npos);
  EXPECT_NE(bound.config.to_text(std::nullopt).find("other.steps"), std::string::npos);
  error_of(ExitCode::kUsage, [&] { bound.config.to_text("none"); });
}

TEST(Config, AFileThatIsNotThereIsAUsageError) {
  Bound bound;
  const auto message = error_of(ExitCode::kUsage, [&] { bound.config.load("no/such.yaml"); });
  EXPECT_NE(message.find("no/such.yaml"), std::string::npos);
}

TEST(Nearest, FindsTypicalSlips) {
  const std::vector<std::string> known{"train.lr", "train.steps", "data.seq_len"};
  EXPECT_EQ(nearest("train.lrr", known), "train.lr");
  EXPECT_EQ(nearest("train.step", known), "train.steps");
  EXPECT_EQ(nearest("data.seqlen", known), "data.seq_len");
  EXPECT_FALSE(nearest("zzzzzzzzzz", known));
}

}  // namespace
}  // namespace tightloop
