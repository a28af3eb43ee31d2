#pragma once

#include <cstdint>

#include "core/random.h"

namespace tightloop {

/// Which sample (a row, or a batch of pairs) comes at a position of a run's endless sequence of passes.
struct SampleAt {
  uint64_t pass = 0;
  uint64_t sample = 0;
  uint32_t draw = 0;  // a random word of the pass
};

/// The order of samples: position `global` of passes over `count` of them, each pass shuffled anew. A
/// function of its arguments alone, never of threads, processes or stops.
inline SampleAt sample_at(uint64_t global, uint64_t count, uint64_t seed, bool shuffle) {
  SampleAt at{.pass = global / count, .sample = global % count};
  if (!shuffle) return at;
  const auto words = philox(seed, at.pass);
  at.sample = Permutation(count, words[0] | uint64_t{words[1]} << 32)[at.sample];
  at.draw = words[2];
  return at;
}

}  // namespace tightloop
