#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/watch/run_curves.h"
#include "train/watch/run_log.h"

namespace tightloop {

/// What a report shows of one run. read() takes in what its files have got since the last time, also while a
/// process writes them, and gives all of it: name, state, settings, machine, curves, events, samples, and
/// notes: sentences about what is missing, broken or cut.
class RunReport {
 public:
  static constexpr size_t kMostPoints = 2000;  // of a curve
  static constexpr size_t kMostEvents = 2000, kMostSamples = 400, kMostText = 4000;

  explicit RunReport(const std::filesystem::path& root);
  const std::filesystem::path& root() const { return root_; }
  nlohmann::json read();

 private:
  void read_lines();
  void read_settings();
  /// Sentences about what is missing, broken or left out.
  std::vector<std::string> notes() const;

  std::filesystem::path root_;
  JsonLinesReader metrics_, events_, samples_;
  RunCurves curves_;
  std::vector<nlohmann::json> event_lines_, sample_lines_;
  std::map<std::string, std::string> settings_;
  std::string settings_note_;
};

/// The data of a page: {"runs": [...], "metrics": {name: help}, "made": seconds since 1970, ...}. "revision"
/// is another one where the runs are.
nlohmann::json report_data(std::vector<RunReport>& runs);

/// JSON that may stand in a <script> of a page whatever its strings are: "</script>" and "<!--" do not end
/// it.
std::string script_json(const nlohmann::json& json);

}  // namespace tightloop
