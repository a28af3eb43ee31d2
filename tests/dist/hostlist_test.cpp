#include "dist/hostlist.h"

#include <fmt/ranges.h>

#include "core/random.h"
#include "support.h"

namespace tightloop::testing {
namespace {

std::string expanded(std::string_view list) { return fmt::format("{}", fmt::join(hosts_of(list), " ")); }

TEST(Hostlist, IsWhatSlurmMeansByIt) {
  EXPECT_EQ(expanded("gpu[01-03,7],login1"), "gpu01 gpu02 gpu03 gpu7 login1");
  EXPECT_EQ(expanded("node1"), "node1");
  EXPECT_EQ(expanded("a-b.example.org,c"), "a-b.example.org c");
  EXPECT_EQ(expanded("n[8-11]"), "n8 n9 n10 n11");
  EXPECT_EQ(expanded("n[098-101]"), "n098 n099 n100 n101");
  EXPECT_EQ(expanded("n[0]"), "n0");
  EXPECT_EQ(expanded("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
  EXPECT_EQ(expanded("[1-2]"), "1 2");
}

TEST(Hostlist, NonsenseIsShownAndNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{{"", "empty name"},
                                                               {"a,,b", "empty name"},
                                                               {"a,", "empty name"},
                                                               {"n[1-3", "no ']'"},
                                                               {"n1-3]", "']' too many"},
                                                               {"n[]", "something else than numbers"},
                                                               {"n[a-b]", "something else than numbers"},
                                                               {"n[1,]", "something else than numbers"},
                                                               {"n[1-]", "something else than numbers"},
                                                               {"n[3-1]", "ends before it begins"},
                                                               {"n[0-99999999]", "too many machines"},
                                                               {"a[0-2000]b[0-2000]", "too many machines"},
                                                               {"n[1-18446744073709551615]", "too large"},
                                                               {"n[99999999999999999999]", "too large"}};
  for (const auto& [list, problem] : cases) {
    SCOPED_TRACE(list);
    const auto message = error_of(ExitCode::kUsage, [&] { hosts_of(list); });
    EXPECT_NE(message.find(problem), std::string::npos) << message;
    EXPECT_NE(message.find("'" + list + "'"), std::string::npos) << message;
  }
}

/// Names as Slurm puts them together: neighbours with one beginning and one width in brackets.
std::string put_together(const std::vector<std::pair<std::string, std::string>>& hosts, Random& random) {
  std::string list;
  for (size_t i = 0; i < hosts.size();) {
    size_t end = i + 1;
    while (end < hosts.size() && hosts[end].first == hosts[i].first) ++end;
    if (!list.empty()) list += ",";
    list += hosts[i].first;
    if (end == i + 1 && random.below(2) == 0) {
      list += hosts[i].second;
    } else {
      list += "[";
      for (size_t at = i; at < end;) {
        size_t last = at;
        // A range goes on while numbers follow each other in the same width.
        while (last + 1 < end && hosts[last + 1].second.size() == hosts[at].second.size() &&
               std::stoul(hosts[last + 1].second) == std::stoul(hosts[last].second) + 1)
          ++last;
        if (at > i) list += ",";
        list += hosts[at].second;
        if (last > at) list += "-" + hosts[last].second;
        at = last + 1;
      }
      list += "]";
    }
    i = end;
  }
  return list;
}

TEST(Hostlist, GivesBackWhatWasPutTogether) {
  int ranges = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    std::vector<std::pair<std::string, std::string>> hosts;
    const auto groups = 1 + random.below(4);
    for (uint64_t group = 0; group < groups; ++group) {
      const auto name = fmt::format("{}{}", std::string(1 + random.below(3), static_cast<char>('a' + group)),
                                    random.below(2) ? "-" : "");
      const auto width = 1 + random.below(4);
      uint64_t number = random.below(120);
      for (uint64_t i = 0, count = 1 + random.below(12); i < count; ++i) {
        hosts.emplace_back(name, fmt::format("{:0{}}", number, width));
        number += 1 + (random.below(3) == 0 ? random.below(5) : 0);
      }
    }
    const auto list = put_together(hosts, random);
    SCOPED_TRACE(list);
    ranges += list.find('-') != std::string::npos;
    std::vector<std::string> wanted;
    for (const auto& [name, number] : hosts) wanted.push_back(name + number);
    ASSERT_EQ(hosts_of(list), wanted);
  }
  EXPECT_GT(ranges, 1000);
}

// Whatever the bytes, it ends in names or in a sentence.
TEST(Hostlist, AnyBytesAreNamesOrASentence) {
  constexpr std::string_view kLetters = "[]-,019an";
  int good = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    std::string list;
    for (uint64_t i = 0, count = random.below(12); i < count; ++i)
      list += kLetters[random.below(kLetters.size())];
    SCOPED_TRACE(list);
    try {
      for (const auto& host : hosts_of(list)) {
        ASSERT_FALSE(host.empty());
        ASSERT_EQ(host.find_first_of("[],"), std::string::npos);
      }
      ++good;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kUsage);
    }
  }
  EXPECT_GT(good, 500);
}

}  // namespace
}  // namespace tightloop::testing
