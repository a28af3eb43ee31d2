#include "cli/sampling_options.h"
#include "cli/at_least.h"

#include <CLI/App.hpp>

namespace tightloop::cli {

void add_sampling(CLI::App& verb, SamplingConfig& sampling) {
  verb.add_option("--max-tokens", sampling.max_tokens, "Most tokens to generate")->check(at_least(1));
  verb.add_option("--temperature", sampling.temperature, "Sampling temperature; 0: greedy")
      ->check(at_least(0));
  verb.add_option("--top-k", sampling.top_k, "Sample from this many likeliest tokens; 0: all")
      ->check(at_least(0));
  verb.add_option("--top-p", sampling.top_p,
                  "Nucleus sampling: from the likeliest tokens that make up this probability")
      ->check(between(0, 1));
  verb.add_option("--min-p", sampling.min_p,
                  "Leave out tokens below this fraction of the likeliest one's probability")
      ->check(between(0, 1));
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Above 1: tokens seen already become less likely")
      ->check(between(0.01, 100));
  verb.add_option("--seed", sampling.seed, "The same seed gives the same text");
}

}  // namespace tightloop::cli
