#include "train/report/csv_sink.h"

#include "core/files.h"
#include "support.h"

namespace tightloop::testing {
namespace {

nlohmann::json csv_line(int64_t step, const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json line{{"global_step", step}, {"time", 1.5}};
  line.update(more);
  return line;
}

TEST(CsvSink, HasARowForEachLineAndAHeaderOnce) {
  const TempFolder folder;
  const auto file = folder / "metrics.csv";
  CsvSink sink(file, {"global_step", "time", "training/loss", "eval/loss"}, 0);
  sink.write({csv_line(10, {{"training/loss", 2.25}})});
  sink.write({csv_line(10, {{"eval/loss", 2}})});
  IntervalReport running;
  running.running = true;
  sink.write({csv_line(11, {{"training/loss", 9}}), running});
  sink.write({csv_line(20, {{"training/loss", "NaN"}, {"loads", {1, 2}}})});
  sink.flush();
  EXPECT_EQ(read_file(file),
            "global_step,time,training/loss,eval/loss\n"
            "10,1.5,2.25,\n"
            "10,1.5,,2\n"
            "20,1.5,nan,\n");
}

TEST(CsvSink, AColumnThatComesLaterLeavesOlderRowsWhole) {
  const TempFolder folder;
  const auto file = folder / "metrics.csv";
  CsvSink sink(file, {"training/loss"}, 0);
  sink.write({csv_line(10, {{"training/loss", 2}})});
  sink.write({csv_line(20, {{"training/loss", 1}, {"training/loss/a, \"b\"", 3}})});
  sink.write({csv_line(30, {{"training/loss", 0.5}})});
  sink.flush();
  EXPECT_EQ(read_file(file),
            "global_step,time,training/loss,\"training/loss/a, \"\"b\"\"\"\n"
            "10,1.5,2,\n"
            "20,1.5,1,3\n"
            "30,1.5,0.5,\n");
  EXPECT_EQ(csv_cells("a,\"x, \"\"y\"\"\",,b"), (std::vector<std::string>{"a", "x, \"y\"", "", "b"}));
}

TEST(CsvSink, AResumedRunDropsLaterRowsAndBrokenOnes) {
  const TempFolder folder;
  const auto file = folder / "metrics.csv";
  write_file(
      file,
      "global_step,time,old,\"training/loss/a, b\"\n10,1,5,6\n20,1,7,8\n20,1\n30,1,9,9\nx,1,2,3\n15,1,1,1"
      "234");
  {
    CsvSink sink(file, {"training/loss"}, 20);
    sink.write({csv_line(30, {{"training/loss", 4}, {"training/loss/a, b", 2}})});
  }
  EXPECT_EQ(read_file(file),
            "global_step,time,old,\"training/loss/a, b\",training/loss\n"
            "10,1,5,6,\n"
            "20,1,7,8,\n"
            "30,1.5,,2,4\n");
  CsvSink(folder / "other.csv", {"x"}, 20);
  EXPECT_EQ(read_file(folder / "other.csv"), "global_step,time,x\n") << "it was not there";
  write_file(folder / "empty.csv", "");
  CsvSink(folder / "empty.csv", {"x"}, 20);
  EXPECT_EQ(read_file(folder / "empty.csv"), "global_step,time,x\n");
}

TEST(CsvSink, OneThatIsRemovedIsNotWrittenOnInSilence) {
  const TempFolder folder;
  CsvSink sink(folder / "metrics.csv", {}, 0);
  sink.write({csv_line(1)});
  sink.flush();
  fs::remove(folder / "metrics.csv");
  sink.write({csv_line(2)});
  const auto message = error_of(ExitCode::kCheckpoint, [&] { sink.flush(); });
  EXPECT_NE(message.find("metrics.csv"), std::string::npos);
  error_of(ExitCode::kCheckpoint, [&] { CsvSink(folder / "no" / "metrics.csv", {}, 0); });
}

}  // namespace
}  // namespace tightloop::testing
