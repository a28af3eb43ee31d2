#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"

namespace tightloop::testing {

/// Runs of each fuzz test: few by default, since the suite runs them all; TIGHTLOOP_FUZZ_RUNS=1000000 for a
/// long one.
inline uint64_t fuzz_runs(uint64_t usual) {
  const char* set = std::getenv("TIGHTLOOP_FUZZ_RUNS");
  return set ? std::strtoull(set, nullptr, 10) : usual;
}

/// Changes an input in one of the ways that break parsers.
inline void mutate(std::string& bytes, Random& random, const std::vector<std::string>& words) {
  const auto at = [&] { return random.below(bytes.size() + 1); };
  switch (bytes.empty() ? 5 : random.below(8)) {
    case 0:
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
      break;
    case 1:
      bytes[random.below(bytes.size())] = static_cast<char>(random.next());
      break;
    case 2:
      bytes.resize(at());
      break;
    case 3: {
      const uint64_t from = at();
      bytes.erase(from, random.below(9));
      break;
    }
    case 4: {
      const uint64_t from = at();
      bytes.insert(at(), bytes.substr(from, random.below(64)));
      break;
    }
    case 5:
      bytes.insert(at(), words.empty() ? std::string(1, '\0') : words[random.below(words.size())]);
      break;
    case 6:
      bytes.insert(at(), std::string(random.below(100), static_cast<char>(random.next())));
      break;
    case 7: {  // a number that is too large, somewhere
      const uint64_t from = random.below(bytes.size());
      for (uint64_t i = from; i < bytes.size() && i < from + 8; ++i)
        bytes[i] = static_cast<char>(random.below(3) ? 0xff : 0);
      break;
    }
  }
}

/// Calls target(bytes) with `runs` mutations of the seeds. The target must return, or throw only what it
/// catches; a crash or a sanitizer's report is the finding, and an escaping exception fails the test with the
/// input's number.
inline void fuzz(const std::vector<std::string>& seeds, uint64_t runs, const std::vector<std::string>& words,
                 const std::function<void(std::string&, Random&)>& target) {
  for (uint64_t run = 0; run < runs; ++run) {
    Random random(0xf0220 + seeds.size(), run);
    std::string bytes = seeds[random.below(seeds.size())];
    for (uint64_t i = 1 + random.below(6); i > 0; --i) mutate(bytes, random, words);
    target(bytes, random);
  }
}

}  // namespace tightloop::testing
