#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace tightloop {

/// How much two scores of the same sentences would differ on other sentences of the kind.
struct BootstrapResult {
  struct System {
    double score = 0;               // of the sentences as they are
    double mean = 0, interval = 0;  // over the samples: 95 % are within mean +- interval, about
  } first, second;
  double p_value = 1;  // how likely a difference this large is where there is none
};

/// The score of some sentences, given by number (repeats count), of one system.
using SampleScore = std::function<double(std::span<const uint32_t>)>;

/// Paired bootstrap as sacreBLEU tests it: both systems are scored on the same samples of as many sentences,
/// drawn with replacement. The samples are a function of the seed.
BootstrapResult paired_bootstrap(uint32_t sentences, int samples, uint64_t seed, const SampleScore& first,
                                 const SampleScore& second);

}  // namespace tightloop
