#include "dist/interfaces.h"

#include <algorithm>

#include "dist/processes.h"
#include "dist/several.h"

namespace tightloop::testing {
namespace {

const std::vector<Interface> kThree{{"lo", "127.0.0.1", true}, {"eth0", "10.0.0.2"}, {"ib0", "10.1.0.2"}};

TEST(Interfaces, ThisMachineHasALoopback) {
  const auto found = interfaces();
  const auto loopback = std::ranges::find_if(found, [](const auto& one) { return one.loopback; });
  ASSERT_NE(loopback, found.end());
  EXPECT_EQ(loopback->address, "127.0.0.1");
  EXPECT_CONTAINS(interfaces_text(found), loopback->name + " (127.0.0.1)");
}

TEST(Interfaces, TheWayToTheMeetingPointDecides) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("there.is.no.such.host.invalid"), "");
  EXPECT_EQ(reachable_address("localhost"), "127.0.0.1");
  EXPECT_EQ(reachable_address("there.is.no.such.host.invalid"), "");
  for (const auto& one : interfaces())
    if (!one.loopback) {
      EXPECT_EQ(reachable_address(one.address), one.address);
    }
}

TEST(Interfaces, GlooTakesNamesThatAreThere) {
  EXPECT_EQ(gloo_interfaces("eth0", kThree), std::vector<std::string>{"eth0"});
  EXPECT_EQ(gloo_interfaces("eth0,ib0", kThree), (std::vector<std::string>{"eth0", "ib0"}));
  for (const char* wrong : {"eth1", "eth", "eth0,eth1", ","}) {
    const auto message = error_of(ExitCode::kUsage, [&] { gloo_interfaces(wrong, kThree); });
    EXPECT_CONTAINS(message, std::string("GLOO_SOCKET_IFNAME is '") + wrong + "'");
    EXPECT_CONTAINS(message, "lo (127.0.0.1), eth0 (10.0.0.2), ib0 (10.1.0.2)");
  }
}

TEST(Interfaces, NcclTakesBeginningsOfNames) {
  for (const char* right : {"eth", "eth0", "ib,eth9", "=eth0", "^lo", "^=lo,eth0", "^docker"})
    EXPECT_NO_THROW(check_nccl_interfaces(right, kThree)) << right;
  for (const char* wrong : {"ens", "=eth", "^lo,eth,ib", "eth01"}) {
    const auto message = error_of(ExitCode::kUsage, [&] { check_nccl_interfaces(wrong, kThree); });
    EXPECT_CONTAINS(message, std::string("NCCL_SOCKET_IFNAME is '") + wrong + "'");
    EXPECT_CONTAINS(message, "ib0 (10.1.0.2)");
  }
}

TEST(Interfaces, AWrongNameEndsTheStartInASentence) {
  if (!in_child()) return expect_success(2, {{"GLOO_SOCKET_IFNAME", "nothing0"}});
  EXPECT_CONTAINS(error_of(ExitCode::kUsage, [] { Processes(); }), "GLOO_SOCKET_IFNAME is 'nothing0'");
}

// Names differ from machine to machine. The others wait for connections to the one that has none, as they do
// in the program: until the last resort.
TEST(Interfaces, AWrongNameOfOneProcessIsToldToTheOthers) {
  if (!in_child()) return expect_success(2);
  const bool wrong = std::string(std::getenv("RANK")) == "1";
  if (wrong) ::setenv("GLOO_SOCKET_IFNAME", "nothing0", 1);
  const auto expect_it = [](const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_CONTAINS(std::string(error.what()),
                    "rank 1 of 2 (host " + host_name() + "): GLOO_SOCKET_IFNAME is 'nothing0'");
  };
  try {
    const Processes processes(rendezvous_from_environment(), {}, [&](const Error& why) {
      expect_it(why);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    });
    ADD_FAILURE() << "they have met";
  } catch (const Error& error) {
    expect_it(error);
  }
}

TEST(Interfaces, AWrongNameIsSaidThoughNobodyComes) {
  ::setenv("GLOO_SOCKET_IFNAME", "nothing0", 1);
  const Rendezvous rendezvous{
      .rank = 0, .world = 2, .address = "127.0.0.1", .port = static_cast<uint16_t>(free_port())};
  const auto message =
      error_of(ExitCode::kUsage, [&] { Processes(rendezvous, {.join = std::chrono::milliseconds(300)}); });
  ::unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_CONTAINS(message, "GLOO_SOCKET_IFNAME is 'nothing0'");
}

TEST(Interfaces, ANamedOneIsUsed) {
  if (!in_child()) return expect_success(2, {{"GLOO_SOCKET_IFNAME", "lo"}});
  Processes processes;
  EXPECT_EQ(processes.sum(int64_t{1}), 2);
}

// As on machines whose own name stands for the loopback in /etc/hosts.
TEST(Interfaces, AMeetingPointThatIsOnlyKnownAsTheLoopbackIsReachedByAnother) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  const auto address = reachable_address(name);
  const auto found = interfaces();
  if (std::ranges::all_of(found, [](const auto& one) { return one.loopback; }))
    GTEST_SKIP() << "there is only a loopback here";
  if (address_towards(name).empty()) GTEST_SKIP() << "this machine does not know its own name";
  EXPECT_FALSE(is_loopback(address)) << address;
  EXPECT_TRUE(std::ranges::any_of(found, [&](const auto& one) { return one.address == address; })) << address;
}

}  // namespace
}  // namespace tightloop::testing
