#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "infer/exact_match.h"

namespace tightloop::cli {

/// Exact match by task as a table, and the examples.
std::string to_text(const ExactMatch& result);
nlohmann::json to_json(const ExactMatch& result);

}  // namespace tightloop::cli
