#include "cli/sampling_options.h"
#include "cli/at_least.h"

#include <CLI/App.hpp>

namespace tightloop::cli {

void add_sampling(CLI::App& verb, SamplingConfig& sampling) {
  verb.add_option("--max-tokens", sampling.max_tokens, "Most tokens to make")->check(at_least(1));
  verb.add_option("--temperature", sampling.temperature, "0: always the likeliest token")->check(at_least(0));
  verb.add_option("--top-k", sampling.top_k, "Choose among this many likeliest tokens; 0: all")
      ->check(at_least(0));
  verb.add_option("--top-p", sampling.top_p, "Choose among the likeliest that make up this probability")
      ->check(between(0, 1));
  verb.add_option("--min-p", sampling.min_p, "Leave out tokens less likely than this share of the likeliest")
      ->check(between(0, 1));
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Above 1: tokens seen already become less likely")
      ->check(between(0.01, 100));
  verb.add_option("--seed", sampling.seed, "The same seed gives the same text");
}

}  // namespace tightloop::cli
