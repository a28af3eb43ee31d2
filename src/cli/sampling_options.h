#pragma once

#include "infer/sample.h"

namespace CLI {
class App;
}

namespace tightloop::cli {

/// --max-tokens, --temperature, --top-k, --top-p, --min-p, --repetition-penalty and --seed.
void add_sampling(CLI::App& verb, SamplingConfig& sampling);

}  // namespace tightloop::cli
