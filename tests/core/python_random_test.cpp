// Against Python's own: tests/golden/make_python_random.py made the numbers.
#include "core/random/python_random.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

nlohmann::json random_golden() {
  return nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/python_random.json"));
}

TEST(PythonRandom, GivesPythonsWords) {
  for (const auto& [seed, words] :
       random_golden().at("words").get<std::vector<std::pair<uint64_t, std::vector<uint32_t>>>>()) {
    PythonRandom random(seed);
    std::vector<uint32_t> last;
    for (int i = 0; i < 700; ++i) {
      last.push_back(random.next());
      if (last.size() > words.size()) last.erase(last.begin());
    }
    EXPECT_EQ(last, words) << seed;
  }
}

TEST(PythonRandom, ShufflesAsPythonDoes) {
  for (const auto& item : random_golden().at("shuffles")) {
    const auto wanted = item.at(1).get<std::vector<int>>();
    std::vector<int> items(wanted.size());
    std::iota(items.begin(), items.end(), 0);
    PythonRandom(item.at(0).get<uint64_t>()).shuffle(items);
    EXPECT_EQ(items, wanted) << item.at(0);
  }
}

TEST(PythonRandom, SamplesAsPythonDoes) {
  for (const auto& item : random_golden().at("samples")) {
    const auto wanted = item.at(2).get<std::vector<size_t>>();
    const auto size = item.at(1).get<size_t>();
    EXPECT_EQ(PythonRandom(item.at(0).get<uint64_t>()).sample(size, wanted.size()), wanted)
        << item.at(0) << ", " << wanted.size() << " of " << size;
  }
}

}  // namespace
}  // namespace tightloop
