#include "train/watch/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/files.h"
#include "core/folder_lock.h"
#include "core/hash.h"
#include "core/version.h"
#include "train/report/metric_table.h"
#include "train/report/metrics.h"
#include "train/run/run_events.h"
#include "train/run/run_folder.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

constexpr size_t kLinesAtOnce = 4096;

std::string text_in(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_or(const nlohmann::json& line, const char* name, double otherwise) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : otherwise;
}

/// Cut at the end of a character.
std::string cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most) + " ...";
}

bool is_start(const nlohmann::json& event) {
  const auto kind = choice_named<RunEvent>(text_in(event, "event"));
  return kind == RunEvent::kStarted || kind == RunEvent::kResumed;
}

std::string_view help_of(RunState state) {
  return std::ranges::find(kChoices<RunState>, state, &Choice<RunState>::value)->help;
}

template <class Lines>
auto newest(const Lines& lines, size_t most) {
  return std::span(lines).subspan(lines.size() - std::min(lines.size(), most));
}

nlohmann::json shown_events(const std::vector<nlohmann::json>& lines) {
  nlohmann::json events = nlohmann::json::array();
  for (const auto& line : newest(lines, RunReport::kMostEvents))
    events.push_back({{"time", number_or(line, "time", 0)},
                      {"step", number_or(line, "global_step", 0)},
                      {"event", text_in(line, "event")},
                      {"text", cut(text_in(line, "text"), RunReport::kMostText)}});
  return events;
}

nlohmann::json shown_samples(const std::vector<nlohmann::json>& lines) {
  nlohmann::json samples = nlohmann::json::array();
  for (const auto& line : newest(lines, RunReport::kMostSamples)) {
    nlohmann::json sample{{"step", number_or(line, "global_step", 0)}};
    for (const char* name : {"kind", "prompt", "text", "reference"})
      if (line.contains(name)) sample[name] = cut(text_in(line, name), RunReport::kMostText);
    samples.push_back(std::move(sample));
  }
  return samples;
}

fs::path without_last_slash(const fs::path& root) {
  const fs::path normal = fs::absolute(root).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// All new lines, piece by piece: `restart` where the file begins anew, `add` for each.
template <class Restart, class Add>
void take_new(JsonLinesReader& reader, Restart&& restart, Add&& add) {
  for (bool more = true; more;) {
    const auto lines = reader.read(kLinesAtOnce);
    if (reader.restarted()) restart();
    for (const auto& line : lines) add(line);
    more = !lines.empty();
  }
}

}  // namespace

RunReport::RunReport(const fs::path& root)
    : root_(without_last_slash(root)),
      metrics_(RunFolder(root_).metrics()),
      events_(RunFolder(root_).events()),
      samples_(RunFolder(root_).samples()) {}

void RunReport::read_lines() {
  take_new(
      metrics_, [&] { curves_ = {}; }, [&](const auto& line) { curves_.add(line); });
  take_new(
      events_, [&] { event_lines_.clear(); }, [&](const auto& line) { event_lines_.push_back(line); });
  take_new(
      samples_, [&] { sample_lines_.clear(); }, [&](const auto& line) { sample_lines_.push_back(line); });
}

void RunReport::read_settings() {
  const fs::path file = RunFolder(root_).config();
  try {
    settings_note_.clear();
    if (is_file(file))
      settings_ = values_in(read_file(file));
    else
      settings_note_ = "config.yaml is not there, so settings are not shown.";
  } catch (const Error& error) {
    settings_note_ = fmt::format("Settings are not shown: {}", error.what());
  }
}

std::vector<std::string> RunReport::notes() const {
  std::vector<std::string> notes;
  if (!is_folder(root_)) notes.push_back("The run's folder is gone; what was read before is shown.");
  if (curves_.empty())
    notes.push_back("metrics.jsonl has no line yet: curves come with the first train.logging_steps.");
  const std::pair<const JsonLinesReader*, const char*> files[] = {
      {&metrics_, "metrics.jsonl"}, {&events_, "events.jsonl"}, {&samples_, "samples.jsonl"}};
  for (const auto& [reader, name] : files)
    if (const size_t bad = reader->bad_lines(); bad > 0)
      notes.push_back(fmt::format("{} line{} of {} cannot be read and {} left out.", bad, bad == 1 ? "" : "s",
                                  name, bad == 1 ? "is" : "are"));
  if (curves_.replaced() > 0)
    notes.push_back("Steps were trained again after the run went back; the later numbers are shown.");
  if (curves_.left_out() > 0)
    notes.push_back(fmt::format(
        "The run has more curves than are shown; of those by layer and by source, {} are left out.",
        curves_.left_out()));
  if (event_lines_.size() > kMostEvents)
    notes.push_back(fmt::format("The newest {} of {} events are shown.", kMostEvents, event_lines_.size()));
  if (sample_lines_.size() > kMostSamples)
    notes.push_back(
        fmt::format("The newest {} of {} samples are shown.", kMostSamples, sample_lines_.size()));
  if (!settings_note_.empty()) notes.push_back(settings_note_);
  return notes;
}

nlohmann::json RunReport::read() {
  const std::string holder =
      FolderLock::holder(root_);  // first: a run that ends meanwhile has its last lines
  read_lines();
  read_settings();
  const auto steps = settings_.find("train.steps");
  double total = steps == settings_.end() ? 0 : std::atof(steps->second.c_str());
  const std::string last_event = last_event_of(event_lines_);
  const RunState state =
      run_state({.held = !holder.empty(),
                 .left_elsewhere = !FolderLock::left_elsewhere(root_).empty(),
                 .averaged = last_event.empty() && is_averaged(RunFolder(root_).checkpoints()),
                 .last_event = last_event,
                 .step = static_cast<int64_t>(curves_.last_step()),
                 .steps = static_cast<int64_t>(total)});
  nlohmann::json run{{"name", root_.filename().string()},
                     {"folder", root_.string()},
                     {"state", name_of(state)},
                     {"state_help", help_of(state)},
                     {"holder", holder},
                     {"step", curves_.last_step()},
                     {"settings", settings_},
                     {"curves", curves_.curves(kMostPoints)},
                     {"events", shown_events(event_lines_)},
                     {"samples", shown_samples(sample_lines_)},
                     {"notes", notes()}};
  std::vector<double> starts;
  for (const auto& event : event_lines_) {
    run["updated"] = number_or(event, "time", 0);
    if (!is_start(event)) continue;
    starts.push_back(number_or(event, "time", 0));
    total = number_or(event, "steps", total);
    if (event.contains("best_after")) run["best_after"] = number_or(event, "best_after", 0);
    if (event.contains("machine")) run["machine"] = event["machine"];
    if (event.contains("model")) run["model"] = text_in(event, "model");
  }
  run["steps"] = total;
  run["clock"] = curves_.clock(starts, kMostPoints);
  return run;
}

nlohmann::json report_data(std::vector<RunReport>& runs) {
  nlohmann::json data{{"version", kVersion},
                      {"made", unix_time()},
                      {"most_points", RunReport::kMostPoints},
                      {"runs", nlohmann::json::array()},
                      {"metrics", nlohmann::json::object()}};
  std::map<std::string, int> names;
  for (RunReport& run : runs) {
    data["runs"].push_back(run.read());
    ++names[data["runs"].back()["name"]];
  }
  for (auto& run : data["runs"])  // of equal names, the folders tell them apart
    if (names[run["name"]] > 1) run["name"] = run["folder"];
  data["revision"] = hex64(hash64(script_json(data["runs"])));
  for (const Metric& metric : metric_table()) data["metrics"][std::string(metric.name)] = metric.help;
  return data;
}

std::string script_json(const nlohmann::json& json) {
  nlohmann::json spelled = json;
  spell_non_finite(spelled);
  const std::string text =
      spelled.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      safe += c;
  }
  return safe;
}

}  // namespace tightloop
