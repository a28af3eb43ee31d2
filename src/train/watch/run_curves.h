#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tightloop {

/// The numbers of metrics.jsonl by metric, for plots.
///
/// Lists by layer become a curve for each entry ("training/grad_norm_by_layer/3"), lists of lists one for the
/// largest number of each. Steps that come again (a run that went back to a checkpoint) replace those of
/// before. "NaN" and "Infinity" are kept apart.
class RunCurves {
 public:
  void add(const nlohmann::json& line);
  bool empty() const { return lines_.empty(); }
  double last_step() const { return lines_.empty() ? 0 : lines_.back().step; }
  /// Points that were replaced by those of the same steps, done again.
  size_t replaced() const { return replaced_; }
  /// Curves that there was no room for: of many layers or sources.
  size_t left_out() const { return left_out_.size(); }

  /// {"training/loss": {"steps": [...], "values": [...], "points": 12000, "not_finite": [[70, "NaN"]]}, ...}:
  /// at most `most` points each (see kept_points). A curve that is thinned has "means" and "counts", too: of
  /// the points after the one before up to this one, so that sums over any stretch are those of all points.
  nlohmann::json curves(size_t most) const;
  /// {"steps": [...], "seconds": [...], "tokens": [...]}: how long the run had trained at a step, and on how
  /// many tokens; null where that is not known. `starts`: when a process began to train, in seconds since
  /// 1970; pauses before them do not count. Tokens are those of the lines that say them, the others alike.
  nlohmann::json clock(const std::vector<double>& starts, size_t most) const;

 private:
  struct Curve {
    std::vector<double> steps, values;
    std::vector<std::pair<double, std::string>> not_finite;
  };
  struct Line {
    double step, time, step_time, speed;  // NaN: it does not say
  };
  void add_value(const std::string& name, double step, const nlohmann::json& value, int depth);
  Curve* curve(const std::string& name);
  void forget_from(double step);

  std::map<std::string, Curve> curves_;
  std::vector<Line> lines_;
  std::set<std::string> left_out_;
  size_t replaced_ = 0, bounded_ = 0;  // bounded: curves that kMostCurves counts
};

/// Which of many points are shown: all where there are at most `most`, else the lowest and the highest of
/// each of most / 2 equal parts, with the first and the last point. A spike of one step stays.
std::vector<size_t> kept_points(std::span<const double> values, size_t most);

}  // namespace tightloop
