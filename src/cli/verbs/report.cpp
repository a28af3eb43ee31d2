#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/report_page.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/io/local_server.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/run/run_folder.h"
#include "train/watch/run_report.h"

namespace tightloop::cli {

namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output;
  bool live = false;
  std::optional<int> port;
};

/// The runs that are meant, each once. A folder that holds nothing a run writes is a slip of the user.
std::vector<RunReport> reported_runs(std::vector<std::string> names) {
  if (names.empty()) names.push_back(run_to_watch());
  std::vector<RunReport> runs;
  for (const std::string& name : names) {
    const RunFolder run(existing_run_of(name));
    if (!path_exists(run.config()) && !path_exists(run.metrics()) && !path_exists(run.checkpoints()))
      throw usage_error("'{}' is not a run: it has no config.yaml, metrics.jsonl or checkpoints.", name);
    RunReport report(run.root());
    if (std::ranges::find(runs, report.root(), &RunReport::root) == runs.end())
      runs.push_back(std::move(report));
  }
  return runs;
}

void warn_of_notes(const nlohmann::json& data) {
  for (const auto& run : data["runs"])
    for (const std::string note : run["notes"])
      log::warn("{}: {}", printable(run["name"].get<std::string>()), note);
}

/// A page may take the place of another, and of nothing else: neither of a file of the user nor of one that a
/// run needs.
void refuse_other_files(const fs::path& file) {
  if (is_folder(file)) throw usage_error("--output '{}' is a folder; name a file in it.", file.string());
  if (path_exists(file) && !is_report_page(file))
    throw usage_error("'{}' exists already, and is no report. Name another file with --output.",
                      file.string());
  std::error_code failure;
  const fs::path whole = fs::weakly_canonical(fs::absolute(file, failure), failure);
  for (fs::path folder = whole.parent_path(); folder != folder.root_path(); folder = folder.parent_path()) {
    const RunFolder run(folder);
    if (whole != run.report() && path_exists(run.config()) && is_folder(run.checkpoints()))
      throw usage_error(
          "'{}' is in the folder of a run, which has its report in report.html. Name that, or a file outside "
          "of the run.",
          file.string());
  }
}

void write_report(std::vector<RunReport> runs, const std::string& output) {
  const fs::path file = !output.empty()    ? fs::path(output)
                        : runs.size() == 1 ? RunFolder(runs.front().root()).report()
                                           : fs::path("report.html");
  refuse_other_files(file);
  const auto data = report_data(runs);
  warn_of_notes(data);
  try {
    write_file_whole(file, report_page(data, /*live=*/false));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kCheckpoint) throw;
    throw usage_error("the report was not written: {} Name another place with --output FILE.", error.what());
  }
  log::info("The report is in {}. A browser opens it; it needs no network.",
            output.empty() ? file.lexically_proximate(fs::current_path()).string() : output);
}

void serve_report(std::vector<RunReport> runs, int port) {
  LocalServer server(port);
  warn_of_notes(report_data(runs));
  put(fmt::format("{}\n", server.url()));
  log::info("The report is served on this machine alone until Ctrl-C.");
  const auto answer = [&](const HttpRequest& request) -> std::optional<HttpAnswer> {
    if (request.path == "/")
      return HttpAnswer{"text/html; charset=utf-8", report_page(report_data(runs), /*live=*/true)};
    if (request.path != "/data.json") return {};
    const auto data = report_data(runs);
    if (request.query == data["revision"].get<std::string>()) return HttpAnswer{};  // it has that
    return HttpAnswer{"application/json", script_json(data)};
  };
  server.serve(answer, interrupted);
}

void report(const ReportArguments& options) {
  if (options.live && !options.output.empty())
    throw usage_error("--live serves the report and --output writes it: give one of them.");
  if (options.port && !options.live) throw usage_error("--port goes with --live, which serves the report.");
  auto runs = reported_runs(options.runs);
  if (options.live) return serve_report(std::move(runs), options.port.value_or(0));
  write_report(std::move(runs), options.output);
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportArguments>();
  auto* verb = app.add_subcommand("report", "Write a page with a run's curves, events, samples and settings");
  verb->add_option(
      "RUN", options->runs,
      "Folders of runs to show together (default: the one in runs/ that is trained now, or was last)");
  verb->add_option("--output", options->output,
                   "The file (default: report.html in the run; of several runs, here)");
  verb->add_flag("--live", options->live, "Serve it on 127.0.0.1 instead, and follow runs that go on");
  verb->add_option("--port", options->port, "With --live: which port (default: one that is free)")
      ->check(between(0, 65535));
  verb->footer(
      "Examples:\n"
      "  tightloop report runs/quickstart                          runs/quickstart/report.html\n"
      "  tightloop report runs/a runs/b --output both.html         two runs, their curves together\n"
      "  tightloop report runs/quickstart --live                   follow a run in a browser");
  verb->callback([=] { report(*options); });
}

}  // namespace tightloop::cli
