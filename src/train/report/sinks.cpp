#include "train/report/sinks.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "core/terminal/terminal.h"
#include "train/report/metric_table.h"
#include "train/report/terminal_sink.h"

namespace tightloop {

namespace {

// Lines that are cut off, where a run was killed, go too.
void drop_lines_after(const fs::path& file, int64_t step) {
  if (!path_exists(file)) return;
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || parsed.value("global_step", int64_t{0}) > step) continue;
    kept += line + "\n";
  }
  write_file_whole(file, kept);
}

}  // namespace

JsonLinesSink::JsonLinesSink(const fs::path& file, int64_t resumed_step) : path_(file) {
  if (resumed_step > 0) drop_lines_after(file, resumed_step);
  file_.open(file, std::ios::app);
  if (!file_) throw checkpoint_error("cannot write '{}'.", file.string());
}

void JsonLinesSink::write(const MetricsLine& line) {
  if (!line.running()) file_ << line.values.dump() << '\n';
}

void JsonLinesSink::flush() {
  if (!path_exists(path_)) throw checkpoint_error("'{}' was removed while it was written.", path_.string());
  if (!file_.flush()) throw checkpoint_error("cannot write '{}' (is the disk full?).", path_.string());
}

std::string progress_text(const IntervalReport& report) {
  std::string text = fmt::format("step {:>{}}/{}", report.step, fmt::formatted_size("{}", report.total_steps),
                                 report.total_steps);
  for (const Metric& metric : metric_table())
    if (metric.text && !metric.name.starts_with("eval/"))
      text += "  " + metric.text(report.number(metric.name).value_or(0), report.running);
  const double step_seconds = report.number("perf/step_time").value_or(0);
  return fmt::format("{}  {} left", text,
                     human_seconds(step_seconds * static_cast<double>(report.total_steps - report.step)));
}

std::vector<std::unique_ptr<Sink>> standard_sinks(const fs::path& file, int64_t resumed_step) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<JsonLinesSink>(file, resumed_step));
  sinks.push_back(std::make_unique<TerminalSink>(file.parent_path()));
  return sinks;
}

}  // namespace tightloop
