#include "train/run/same_start.h"

#include "core/files.h"
#include "support.h"
#include "train/recorded_device.h"
#include "train/small_recipe.h"

namespace tightloop::testing {
namespace {

/// What two processes would be told that start with these; empty: they may.
std::optional<Error> difference(const Recipe& first, const Recipe& second) {
  return disagreement({"rank 0", "rank 1"}, {start_facts(first), start_facts(second)});
}

Recipe of_file(const fs::path& file) {
  auto recipe = small_recipe();
  recipe.data.source = DataSource::kText, recipe.data.train = {file.string()};
  return recipe;
}

TEST(SameStart, SettingsThatDifferAreNamed) {
  auto other = small_recipe();
  other.train.lr = 0.5;
  const auto error = difference(small_recipe(), other);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ExitCode::kUsage);
  EXPECT_NE(std::string(error->what()).find("rank 1 has train.lr 0.5, rank 0 has 0.01."), std::string::npos)
      << error->what();
}

TEST(SameStart, WhereAndWithHowManyThreadsMayDiffer) {
  auto other = small_recipe();
  other.run.dir = "elsewhere", other.train.device = "cuda:3", other.train.threads = 7;
  other.data.num_workers = 9, other.data.cache = "cache";
  EXPECT_FALSE(difference(small_recipe(), other));
}

TEST(SameStart, AGpuAndACpuAreNoPair) {
  const RecordedDevice gpu;
  const auto facts = device_facts(gpu, at::kFloat);
  EXPECT_FALSE(disagreement({"rank 0", "rank 1"}, {facts, facts}));
  const auto error = disagreement({"rank 0", "rank 1"}, {facts, device_facts(cpu_device(), at::kFloat)});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ExitCode::kDevice);
  const std::string text = error->what();
  EXPECT_NE(text.find("rank 1 has as train.device " + cpu_device().description() + ", a CPU, rank 0 has " +
                      gpu.description() + ", a GPU."),
            std::string::npos)
      << text;
}

TEST(SameStart, DataFilesAreComparedByWhatIsInThem) {
  TempFolder folder;
  write_file_whole(folder / "a.txt", "one two three\n");
  write_file_whole(folder / "b.txt", "one two three\n");
  write_file_whole(folder / "c.txt", "one two threE\n");
  EXPECT_FALSE(difference(of_file(folder / "a.txt"), of_file(folder / "b.txt"))) << "the same file elsewhere";
  const auto error = difference(of_file(folder / "a.txt"), of_file(folder / "c.txt"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ExitCode::kData);
  for (const auto& [who, file] :
       {std::pair{"rank 1 has as data file 1 (train)", "c.txt"}, {"rank 0 has", "a.txt"}})
    EXPECT_NE(std::string(error->what())
                  .find(fmt::format("{} '{}', 14 bytes with hash ", who, (folder / file).string())),
              std::string::npos)
        << error->what();
  auto more = of_file(folder / "a.txt");
  more.data.train.push_back((folder / "c.txt").string());
  const auto count = difference(of_file(folder / "a.txt"), more);
  ASSERT_TRUE(count);
  EXPECT_EQ(count->code(), ExitCode::kData);
  EXPECT_NE(std::string(count->what()).find("rank 1 has number of data files 2, rank 0 has 1"),
            std::string::npos)
      << count->what();
}

}  // namespace
}  // namespace tightloop::testing
