#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/watch/run_list.h"

namespace tightloop::cli {

/// Runs as a table of at most `width` columns; a name that is too long for its column has a line of its own.
/// `colours`: of states; `whole_reasons`: why runs crashed is as long as it is.
std::string runs_table(const std::vector<ListedRun>& runs, int width, double now, bool colours,
                       bool whole_reasons);
nlohmann::json runs_json(const std::vector<ListedRun>& runs, double now);

/// Two runs side by side: settings that differ, and what came of them.
std::string compared_table(const std::string& one, const std::string& other, int width, double now);
nlohmann::json compared_json(const std::string& one, const std::string& other, double now);

}  // namespace tightloop::cli
