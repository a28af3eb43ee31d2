#include "core/io/helper_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using namespace std::chrono_literals;
using testing::error_of;
using testing::TempFolder;

constexpr size_t kRoom = 1 << 20;

std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms))
    if (condition()) return true;
  return false;
}

TEST(HelperProcess, GetsLinesAndAnswersInLines) {
  const TempFolder folder;
  HelperProcess helper(shell("while read -r line; do echo \"<$line>\"; echo note >&2; done; exit 3"),
                       folder / "messages", kRoom);
  std::vector<std::string> answers;
  for (const char* line : {"one", "two words", ""}) helper.send(line);
  EXPECT_TRUE(soon([&] {
    for (auto& answer : helper.answers()) answers.push_back(answer);
    return answers.size() == 3;
  }));
  EXPECT_EQ(answers, (std::vector<std::string>{"<one>", "<two words>", "<>"}));
  EXPECT_FALSE(helper.status());
  EXPECT_TRUE(helper.finish(10s));
  EXPECT_EQ(helper.status(), 3);
  EXPECT_EQ(helper.dropped(), 0);
  EXPECT_EQ(read_file(folder / "messages"), "note\nnote\nnote\n");
}

TEST(HelperProcess, WhatItIsSlowToTakeWaitsAndArrivesWhole) {
  const TempFolder folder;
  const auto out = folder / "out", go = folder / "go";
  HelperProcess helper(
      shell("while [ ! -e '" + go.string() + "' ]; do sleep 0.02; done; cat > '" + out.string() + "'"),
      folder / "messages", 32 << 20);
  std::string sent;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = std::to_string(i) + std::string(100, 'x');
    helper.send(line);
    sent += line + "\n";
  }
  testing::write_file(go, "");
  EXPECT_TRUE(helper.finish(20s, "the end"));
  EXPECT_EQ(helper.dropped(), 0);
  EXPECT_TRUE(read_file(out) == sent + "the end\n");
}

TEST(HelperProcess, OneThatTakesNothingCostsLinesAndNoTime) {
  const TempFolder folder;
  HelperProcess helper(shell("exec sleep 60"), folder / "messages", kRoom);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20'000; ++i) helper.send(std::string(1000, 'x'));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_GT(helper.dropped(), 10'000);
  EXPECT_FALSE(helper.finish(50ms)) << "it is still at it";
  EXPECT_GT(helper.dropped(), 18'000) << "those that waited are lost, too";
  ::kill(helper.pid(), SIGKILL);
  EXPECT_TRUE(soon([&] { return helper.status().has_value(); }));
}

TEST(HelperProcess, LinesAfterItsDeathAreCounted) {
  const TempFolder folder;
  HelperProcess helper(shell("exec sleep 60"), folder / "messages", kRoom);
  ::kill(helper.pid(), SIGKILL);
  EXPECT_TRUE(soon([&] { return helper.status().has_value(); }));
  EXPECT_EQ(helper.status(), 128 + SIGKILL);
  for (int i = 0; i < 5; ++i) helper.send("lost");
  EXPECT_EQ(helper.dropped(), 5);
  EXPECT_TRUE(helper.finish(1s));
}

TEST(HelperProcess, OutlivesCtrlCAndHasNoneOfOurFiles) {
  const TempFolder folder;
  const int open = ::open(folder.path().c_str(), O_RDONLY);  // without O_CLOEXEC
  ASSERT_GT(open, 2);
  HelperProcess helper(shell("ls /proc/self/fd | wc -l; ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 "
                             "/proc/$$/stat; cat >/dev/null"),
                       folder / "messages", kRoom);
  std::vector<std::string> answers;
  soon([&] {
    for (auto& answer : helper.answers()) answers.push_back(answer);
    return answers.size() == 2;
  });
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(std::stoi(answers[0]), 4) << "0, 1, 2 and the folder that ls reads";
  EXPECT_EQ(std::stoi(answers[1]), helper.pid()) << "a session of its own";
  EXPECT_TRUE(helper.finish(10s));
  ::close(open);
}

TEST(HelperProcess, AProgramThatIsNotThereIsASentence) {
  const TempFolder folder;
  const auto message = error_of(ExitCode::kUsage, [&] {
    HelperProcess({(folder / "no-such-program").string()}, folder / "messages", kRoom);
  });
  EXPECT_NE(message.find("no-such-program"), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
