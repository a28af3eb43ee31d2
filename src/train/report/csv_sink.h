#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "train/report/metrics.h"

namespace tightloop {

/// Columns of metrics.csv that every run has; those by source come with their first values.
std::vector<std::string> csv_columns();

/// metrics.csv: a row for each line of metrics.jsonl, a column for each number; lists are left out. A number
/// that gets its first value later, such as the loss of a source, gets its column then: the file is written
/// again whole.
class CsvSink : public Sink {
 public:
  /// `columns` are there from the start. When a run goes on after `resumed_step`, rows of later steps are
  /// dropped first, and so is one that was cut off.
  CsvSink(std::filesystem::path file, std::vector<std::string> columns, int64_t resumed_step);
  std::string name() const override { return path_.filename().string(); }
  void write(const MetricsLine& line) override;
  void flush() override;
  void rewind(int64_t step) override;

 private:
  /// With the rows up to a step of a file that is there; 0: with none.
  void open_after(int64_t step);
  void open();
  /// Rows of a file that is there, up to a step; its columns come first.
  std::string rows_until(int64_t step);
  std::string header() const;
  void add_columns(std::vector<std::string> names);

  const std::filesystem::path path_;
  std::vector<std::string> columns_;
  std::ofstream file_;
};

/// The cells of a row, without quotes.
std::vector<std::string> csv_cells(std::string_view row);
/// As a cell: in quotes where it has to be.
std::string csv_cell(const std::string& text);

}  // namespace tightloop
