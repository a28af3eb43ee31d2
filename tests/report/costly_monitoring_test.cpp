#include "bench/costly_monitoring.h"

#include <algorithm>

#include "core/files.h"
#include "support.h"
#include "train/small_recipe.h"

namespace tightloop {
namespace {

TEST(CostlyMonitoring, ProfilesEvery50thStepAndWritesEach) {
  const testing::TempFolder folder;
  Trainer trainer(testing::small_recipe(), RunFolder::create(folder / "run", false));
  StepTimer timer(trainer);
  CostlyMonitoring costly(timer, folder.path());
  EXPECT_GT(costly.milliseconds(1), 0);
  EXPECT_GT(file_bytes(folder / "trace.json"), 1000u);
  fs::remove(folder / "trace.json");
  costly.milliseconds(CostlyMonitoring::kProfiled - 1);
  EXPECT_FALSE(fs::exists(folder / "trace.json"));
  costly.milliseconds(1);
  EXPECT_TRUE(fs::exists(folder / "trace.json"));
  const std::string records = read_file(folder / "records.jsonl");
  EXPECT_EQ(std::ranges::count(records, '\n'), CostlyMonitoring::kProfiled + 1);
}

}  // namespace
}  // namespace tightloop
