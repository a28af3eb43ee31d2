#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/processes.h"

namespace tightloop {

/// Something that is to be the same in every process.
struct Fact {
  std::string what, value;
  ExitCode code = ExitCode::kUsage;  // of the error where it is not
  std::string known_as{};            // by the process that has it: said and not compared
};

/// What differs between processes, by their names and facts: "rank 2 of 4 (host b) has train.lr 0.001, rank 0
/// of 4 (host a) has 0.0003". Where facts of the first kind differ (the version, say), only that is said, as
/// the others follow from it.
std::optional<Error> disagreement(const std::vector<std::string>& names,
                                  const std::vector<std::vector<Fact>>& facts);

/// The error of disagreement(), in every process the same, where these facts are not. All processes call it.
void require_agreement(Processes& processes, const std::vector<Fact>& facts);

}  // namespace tightloop
