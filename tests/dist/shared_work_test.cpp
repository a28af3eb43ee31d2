#include "dist/shared_work.h"

#include <signal.h>

#include <stdexcept>

#include "core/error.h"
#include "core/interrupt.h"
#include "dist/several.h"

namespace tightloop::testing {
namespace {

TEST(SharedWork, AFailureIsEverybodysResult) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  const auto fail = [&](std::initializer_list<int> ranks) {
    return share_work(processes, [&] {
      for (const int rank : ranks)
        if (processes.rank() == rank) throw data_error("rank {} has no data.\nMore of it.", rank);
    });
  };
  EXPECT_TRUE(fail({}).whole());
  for (const int rank : {0, 1, 2}) {
    const SharedWork work = fail({rank});
    EXPECT_FALSE(work.whole());
    EXPECT_FALSE(work.interrupted);
    EXPECT_EQ(work.failed, rank);
    EXPECT_EQ(work.text(processes), fmt::format("process {}: rank {} has no data.", rank, rank));
  }
  EXPECT_EQ(fail({2, 1}).why, "rank 1 has no data.") << "the first of two";
  EXPECT_TRUE(fail({}).whole()) << "and nothing is left of it";
  const SharedWork wordy = share_work(processes, [&] {
    if (processes.rank() == 2) throw std::runtime_error(std::string(5000, 'x'));
  });
  EXPECT_EQ(wordy.why, std::string(1000, 'x'));
}

TEST(SharedWork, ASignalInOneProcessIsKnownToAll) {
  if (!in_child()) return expect_success(2);
  catch_interrupts();
  Processes processes;
  const SharedWork work = share_work(processes, [&] {
    if (processes.rank() == 1) ::raise(SIGTERM);
    throw_if_interrupted();
  });
  EXPECT_TRUE(work.interrupted);
  EXPECT_EQ(work.failed, -1) << work.why;
  EXPECT_EQ(interrupted(), processes.rank() == 1);
}

TEST(SharedWork, OneProcessMeetsNobody) {
  Processes alone(std::nullopt);
  EXPECT_TRUE(share_work(alone, [] {}).whole());
  const SharedWork work = share_work(alone, [] { throw std::runtime_error("no"); });
  EXPECT_EQ(work.failed, 0);
  EXPECT_EQ(work.text(alone), "no");
}

}  // namespace
}  // namespace tightloop::testing
