#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tightloop {

/// What charts can show of a line of metrics.jsonl, by name. A list of lists is one list for each, NAME/0,
/// NAME/1, ...; an object by name is NAME/KEY. "NaN" and its like are the numbers again.
struct ChartValues {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::vector<double>>> lists;  // none is empty, all finite
};

/// Without "global_step" and "time", which say where a chart has its points.
ChartValues chart_values(const nlohmann::json& line);

/// How many of some numbers lie between two edges, from each to the next; the last edge is the largest
/// number.
struct Histogram {
  std::vector<double> edges, counts;
};
Histogram histogram_of(const std::vector<double>& values, int bins);

}  // namespace tightloop
