#include "train/report/chart_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace tightloop {

namespace {

/// Of a number, or of one that is not finite (spell_non_finite).
std::optional<double> charted_number(const nlohmann::json& value) {
  using Limits = std::numeric_limits<double>;
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return Limits::quiet_NaN();
  if (value == "Infinity") return Limits::infinity();
  if (value == "-Infinity") return -Limits::infinity();
  return {};
}

void add_to_chart(ChartValues& values, const std::string& name, const nlohmann::json& value) {
  if (const auto number = charted_number(value)) return void(values.numbers.emplace_back(name, *number));
  std::vector<double> list;
  for (const auto& [key, item] : value.items())
    if (const auto number = charted_number(item); value.is_array() && number) {
      if (std::isfinite(*number)) list.push_back(*number);
    } else if (value.is_structured()) {
      add_to_chart(values, name + "/" + key, item);
    }
  if (!list.empty()) values.lists.emplace_back(name, std::move(list));
}

}  // namespace

ChartValues chart_values(const nlohmann::json& line) {
  ChartValues values;
  for (const auto& [name, value] : line.items())
    if (name != "global_step" && name != "time") add_to_chart(values, name, value);
  return values;
}

Histogram histogram_of(const std::vector<double>& values, int bins) {
  auto [low, high] = std::ranges::minmax(values);
  const double width = (high - low) / bins;
  // Numbers that are equal, or differ by less than edges could, share one bin.
  if (!(low + width > low && std::isfinite(width))) {
    const double next = std::nextafter(high, std::numeric_limits<double>::infinity());
    return {{low, std::isfinite(next) ? next : high}, {static_cast<double>(values.size())}};
  }
  Histogram histogram{{}, std::vector<double>(bins)};
  for (int i = 0; i < bins; ++i) histogram.edges.push_back(low + width * i);
  histogram.edges.push_back(high);
  for (const double value : values) {
    const auto bin = static_cast<int>((value - low) / width);
    ++histogram.counts[std::min(bin, bins - 1)];
  }
  return histogram;
}

}  // namespace tightloop
