#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_config.h"

namespace tightloop {

/// One line of data.mixture: `name=gsm8k source=jsonl train=a.jsonl weight=2`. Settings of the section `data`
/// that it does not name are those of the configuration around it.
struct MixtureEntry {
  DataConfig data;
  std::string name;
  double weight = 0;  // 0: by epochs
  double epochs = 1;
  int64_t cap = 0;
};

/// A usage error names an entry that cannot be understood. Weights must be given for all entries or for none.
/// A mixture is of pairs alone, or has none.
std::vector<MixtureEntry> parse_mixture(const DataConfig& config);

/// A line for each source of a mixture, `documents` and `passes` being what an epoch has of it, and a warning
/// where weights have it come often; entries that say data.mixture's epochs are as they were asked for.
struct MixtureText {
  std::vector<std::string> lines, warnings;
};
MixtureText mixture_text(const std::vector<MixtureEntry>& entries, const std::vector<uint64_t>& documents,
                         const std::vector<double>& passes);

/// Whether the source, or every entry of the mixture, holds pairs.
bool loads_pairs(const DataConfig& config);

}  // namespace tightloop
