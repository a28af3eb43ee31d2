#include "train/report/sinks.h"

#include <fmt/format.h>

#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/report/csv_sink.h"
#include "train/report/metric_table.h"
#include "train/report/tensorboard_sink.h"
#include "train/report/terminal_sink.h"
#include "train/report/wandb_sink.h"
#include "train/run/run_settings.h"
#include "train/watch/run_log.h"

namespace tightloop {

void drop_lines_after(const fs::path& file, int64_t step) {
  if (!path_exists(file)) return;
  try {
    std::istringstream in(read_file(file));  // whole, or an error: what could not be read is not dropped
    std::string kept;
    for (std::string line; std::getline(in, line);) {
      const auto parsed = nlohmann::json::parse(shallow_json(line), nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object() && number_in(parsed, "global_step").value_or(0) <= static_cast<double>(step))
        kept += line + "\n";
    }
    write_file_whole(file, kept);
  } catch (const std::exception& error) {
    log::warn("Lines of steps after {} stay in '{}', where later ones count: {}", step, file.string(),
              error.what());
  }
}

namespace {

/// All settings, for those who read numbers as numbers.
nlohmann::json settings_by_section(Recipe& recipe) {
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [key, text] : values_in(recipe.bind().to_yaml())) {
    const size_t dot = key.find('.');
    settings[key.substr(0, dot)][key.substr(dot + 1)] = setting_json(text);
  }
  return settings;
}

}  // namespace

JsonLinesSink::JsonLinesSink(const fs::path& file, int64_t resumed_step) : path_(file) {
  open_after(resumed_step);
}

void JsonLinesSink::open_after(int64_t step) {
  if (step > 0) drop_lines_after(path_, step);
  file_.open(path_, std::ios::app);
  if (!file_) throw checkpoint_error("cannot write '{}'.", path_.string());
}

void JsonLinesSink::write(const MetricsLine& line) {
  if (!line.running())
    file_ << line.values.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void JsonLinesSink::rewind(int64_t step) {
  flush();
  file_.close();
  open_after(step);
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

std::vector<std::unique_ptr<Sink>> sinks_of(const RunFolder& run, Recipe& recipe, int64_t resumed_step) {
  auto sinks = standard_sinks(run.metrics(), resumed_step);
  const auto add = [&](bool wanted, const char* where, const auto& make) {
    try {
      if (wanted) sinks.push_back(make());
    } catch (const std::exception& error) {
      log::warn("Metrics are not kept {}, training goes on: {}", where, error.what());
    }
  };
  add(recipe.log.tensorboard, "for TensorBoard",
      [&] { return std::make_unique<TensorboardSink>(run.tensorboard(), resumed_step); });
  add(recipe.log.csv, "in metrics.csv",
      [&] { return std::make_unique<CsvSink>(run.csv(), csv_columns(), resumed_step); });
  add(recipe.wandb.mode != WandbMode::kOff, "by Weights & Biases",
      [&] { return std::make_unique<WandbSink>(recipe.wandb, run.root(), settings_by_section(recipe)); });
  return sinks;
}

}  // namespace tightloop
