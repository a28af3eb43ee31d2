#include "train/watch/run_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

#include "train/report/metric_table.h"

namespace tightloop {

namespace {

constexpr size_t kMostCurves = 400;      // by layer, source or unknown name: more would be no page to read
constexpr size_t kMostOfAList = 128;     // layers
constexpr size_t kMostNotFinite = 1000;  // of a curve
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Seven digits: what a plot can show, at half the size.
double rounded(double value) { return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr); }

double number_or_unknown(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : kUnknown;
}

bool is_not_finite(const nlohmann::json& value) {
  return value == "NaN" || value == "Infinity" || value == "-Infinity";
}

/// The largest number in a list of any depth; nothing where there is none.
std::optional<double> largest_in(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  std::optional<double> largest;
  if (value.is_array())
    for (const auto& part : value)
      if (const auto found = largest_in(part)) largest = std::max(largest.value_or(*found), *found);
  return largest;
}

/// Fills what is not known with what was known last; the lines before the first, with that one.
void fill(std::vector<double>& values) {
  const auto known = [](double value) { return !std::isnan(value); };
  const auto first = std::ranges::find_if(values, known);
  double last = first == values.end() ? kUnknown : *first;
  for (double& value : values) value = known(value) ? last = value : last;
}

void add_means(nlohmann::json& curve, std::span<const double> values, std::span<const size_t> kept) {
  nlohmann::json means = nlohmann::json::array(), counts = nlohmann::json::array();
  size_t begin = 0;
  for (const size_t last : kept) {
    const auto part = values.subspan(begin, last + 1 - begin);
    means.push_back(rounded(std::reduce(part.begin(), part.end()) / static_cast<double>(part.size())));
    counts.push_back(part.size());
    begin = last + 1;
  }
  curve["means"] = std::move(means), curve["counts"] = std::move(counts);
}

}  // namespace

std::vector<size_t> kept_points(std::span<const double> values, size_t most) {
  std::vector<size_t> kept;
  const size_t count = values.size(), parts = std::max<size_t>(1, most / 2);
  if (count <= most) {
    for (size_t i = 0; i < count; ++i) kept.push_back(i);
    return kept;
  }
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * count / parts, end = (part + 1) * count / parts;
    const auto [low, high] = std::minmax_element(values.begin() + static_cast<ptrdiff_t>(begin),
                                                 values.begin() + static_cast<ptrdiff_t>(end));
    const auto at = std::minmax({low - values.begin(), high - values.begin()});  // by value
    for (const ptrdiff_t i : {at.first, at.second})
      if (kept.empty() || static_cast<size_t>(i) > kept.back()) kept.push_back(static_cast<size_t>(i));
  }
  if (kept.front() != 0) kept.insert(kept.begin(), 0);
  if (kept.back() != count - 1) kept.push_back(count - 1);
  return kept;
}

void RunCurves::add(const nlohmann::json& line) {
  const double step = number_or_unknown(line, "global_step");
  if (std::isnan(step)) return;
  if (!lines_.empty() && step < lines_.back().step) forget_from(step);
  lines_.push_back({step, number_or_unknown(line, "time"), number_or_unknown(line, "perf/step_time"),
                    number_or_unknown(line, "perf/tokens_per_second")});
  for (const auto& [name, value] : line.items())
    if (name != "global_step" && name != "time") add_value(name, step, value, 0);
}

void RunCurves::add_value(const std::string& name, double step, const nlohmann::json& value, int depth) {
  if (value.is_number()) {
    if (Curve* one = curve(name)) one->steps.push_back(step), one->values.push_back(value.get<double>());
  } else if (is_not_finite(value)) {
    Curve* one = curve(name);
    if (one && one->not_finite.size() < kMostNotFinite) one->not_finite.emplace_back(step, value);
  } else if (value.is_array() && depth == 0) {
    for (size_t i = 0; i < std::min(value.size(), kMostOfAList); ++i) {
      const auto largest = value[i].is_array() ? largest_in(value[i]) : std::nullopt;
      add_value(fmt::format("{}/{}", name, i), step, largest ? nlohmann::json(*largest) : value[i],
                depth + 1);
    }
    for (size_t i = kMostOfAList; i < value.size(); ++i) left_out_.insert(fmt::format("{}/{}", name, i));
  } else if (value.is_object() && depth < 2) {
    for (const auto& [key, part] : value.items())
      add_value(fmt::format("{}/{}", name, key), step, part, part.is_array() ? depth : depth + 1);
  }
}

RunCurves::Curve* RunCurves::curve(const std::string& name) {
  if (const auto found = curves_.find(name); found != curves_.end()) return &found->second;
  if (find_metric(name)) return &curves_[name];  // what every run has, whatever came before it
  if (bounded_ < kMostCurves) return ++bounded_, &curves_[name];
  left_out_.insert(name);
  return nullptr;
}

void RunCurves::forget_from(double step) {
  std::erase_if(lines_, [&](const Line& line) { return line.step >= step; });
  for (auto& [name, curve] : curves_) {
    const auto kept = std::ranges::lower_bound(curve.steps, step) - curve.steps.begin();
    replaced_ += curve.steps.size() - static_cast<size_t>(kept);
    curve.steps.resize(static_cast<size_t>(kept)), curve.values.resize(static_cast<size_t>(kept));
    std::erase_if(curve.not_finite, [&](const auto& point) { return point.first >= step; });
  }
}

nlohmann::json RunCurves::curves(size_t most) const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, curve] : curves_) {
    if (curve.values.empty() && curve.not_finite.empty()) continue;
    nlohmann::json steps = nlohmann::json::array(), values = nlohmann::json::array();
    const auto kept = kept_points(curve.values, most);
    for (const size_t i : kept)
      steps.push_back(rounded(curve.steps[i])), values.push_back(rounded(curve.values[i]));
    all[name] = {{"steps", std::move(steps)}, {"values", std::move(values)}, {"points", curve.values.size()}};
    if (kept.size() < curve.values.size()) add_means(all[name], curve.values, kept);
    if (!curve.not_finite.empty()) all[name]["not_finite"] = curve.not_finite;
  }
  return all;
}

nlohmann::json RunCurves::clock(const std::vector<double>& starts, size_t most) const {
  std::vector<double> step_times, step_tokens, steps, seconds, tokens;
  for (const Line& line : lines_)
    step_times.push_back(line.step_time), step_tokens.push_back(line.step_time * line.speed);
  fill(step_times), fill(step_tokens);
  double elapsed = 0, trained = 0, before = kUnknown, step_before = 0;
  bool any_time = false;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    const double more = line.step - step_before;
    if (!std::isnan(line.time)) {
      double from = before;
      for (const double start : starts)
        if (start <= line.time && !(start <= from)) from = start;
      elapsed += std::isnan(from) ? (std::isnan(step_times[i]) ? 0 : more * step_times[i])
                                  : std::max(0.0, line.time - from);
      before = line.time;
      any_time = true;
    } else if (!std::isnan(step_times[i])) {
      elapsed += more * step_times[i];
      any_time = true;
    }
    trained += more * step_tokens[i];
    if (steps.empty() || line.step > steps.back())
      steps.push_back(line.step), seconds.push_back(elapsed), tokens.push_back(trained);
    step_before = line.step;
  }
  nlohmann::json clock{{"steps", nlohmann::json::array()}, {"seconds", nullptr}, {"tokens", nullptr}};
  for (const size_t i : kept_points(seconds, most)) {
    clock["steps"].push_back(steps[i]);
    if (any_time) clock["seconds"].push_back(rounded(seconds[i]));
    if (!std::isnan(trained)) clock["tokens"].push_back(std::round(tokens[i]));
  }
  return clock;
}

}  // namespace tightloop
