#include "train/report/csv_sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "core/error.h"
#include "core/files.h"
#include "train/report/chart_values.h"
#include "train/report/metric_table.h"

namespace tightloop {

namespace {

constexpr const char* kStepColumn = "global_step";
constexpr const char* kTimeColumn = "time";

}  // namespace

// RFC 4180. Names of sources are all that may need quotes; no cell has a line's end, which csv_cell leaves
// out.
std::vector<std::string> csv_cells(std::string_view row) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < row.size(); ++i) {
    const char letter = row[i];
    if (letter == '"' && quoted && i + 1 < row.size() && row[i + 1] == '"')
      cells.back() += row[++i];
    else if (letter == '"')
      quoted = !quoted;
    else if (letter == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += letter;
  }
  return cells;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell;
  for (const char letter : text) {
    if (letter == '"') cell += '"';
    cell += letter == '\n' || letter == '\r' ? ' ' : letter;
  }
  return "\"" + cell + "\"";
}

std::vector<std::string> csv_columns() {
  std::vector<std::string> columns;
  for (const Metric& metric : metric_table())
    if (!metric.list && metric.name.find('<') == metric.name.npos) columns.emplace_back(metric.name);
  return columns;
}

CsvSink::CsvSink(fs::path file, std::vector<std::string> columns, int64_t resumed_step)
    : path_(std::move(file)), columns_{kStepColumn, kTimeColumn} {
  std::erase_if(columns, [&](const std::string& name) { return std::ranges::count(columns_, name) > 0; });
  std::ranges::move(columns, std::back_inserter(columns_));
  open_after(resumed_step);
}

void CsvSink::open_after(int64_t step) {
  const std::string rows = step > 0 && path_exists(path_) ? rows_until(step) : "";
  write_file_whole(path_, header() + rows);
  open();
}

void CsvSink::rewind(int64_t step) {
  flush();
  file_.close();
  open_after(step);
}

void CsvSink::open() {
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) throw checkpoint_error("cannot write '{}'.", path_.string());
}

std::string CsvSink::header() const {
  std::vector<std::string> cells;
  for (const std::string& name : columns_) cells.push_back(csv_cell(name));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string CsvSink::rows_until(int64_t step) {
  const std::string text = read_file(path_);
  std::string_view rest(text);
  const auto next_row = [&] {  // of whole ones
    const size_t end = rest.find('\n');
    const std::string_view row = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return row;
  };
  if (rest.find('\n') == rest.npos) return "";
  const auto own = std::exchange(columns_, csv_cells(next_row()));
  const size_t width = columns_.size();
  const auto at = std::ranges::find(columns_, kStepColumn) - columns_.begin();
  for (const std::string& name : own)
    if (!std::ranges::count(columns_, name)) columns_.push_back(name);
  std::string rows;
  while (rest.find('\n') != rest.npos) {
    const std::string_view row = next_row();
    const auto cells = csv_cells(row);
    int64_t of = 0;
    if (cells.size() != width || at == static_cast<ptrdiff_t>(width)) continue;
    const std::string& cell = cells[at];
    if (std::from_chars(cell.data(), cell.data() + cell.size(), of).ec != std::errc() || of > step) continue;
    rows += std::string(row) + std::string(columns_.size() - width, ',') + "\n";
  }
  return rows;
}

void CsvSink::add_columns(std::vector<std::string> names) {
  flush();
  file_.close();
  const std::string text = read_file(path_), more(names.size(), ',');
  std::ranges::move(names, std::back_inserter(columns_));
  std::string rows = header();
  for (size_t begin = text.find('\n') + 1, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    rows += text.substr(begin, end - begin) + more + "\n";
  write_file_whole(path_, rows);
  open();
}

void CsvSink::write(const MetricsLine& line) {
  if (line.running()) return;
  std::map<std::string, std::string> cells;
  for (const char* name : {kStepColumn, kTimeColumn})
    if (line.values.contains(name)) cells[name] = line.values.at(name).dump();
  for (const auto& [name, number] : chart_values(line.values).numbers)
    cells[name] = fmt::format("{}", number);
  std::vector<std::string> unknown, row;
  for (const auto& [name, cell] : cells)
    if (!std::ranges::count(columns_, name)) unknown.push_back(name);
  if (!unknown.empty()) add_columns(std::move(unknown));
  for (const std::string& name : columns_) row.push_back(cells[name]);
  file_ << fmt::format("{}\n", fmt::join(row, ","));
}

void CsvSink::flush() {
  if (!path_exists(path_)) throw checkpoint_error("'{}' was removed while it was written.", path_.string());
  if (!file_.flush()) throw checkpoint_error("cannot write '{}' (is the disk full?).", path_.string());
}

}  // namespace tightloop
