#include "train/report/wandb_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/log.h"
#include "train/report/chart_values.h"
#include "train/run/run_events.h"
#include "train/watch/run_follower.h"

namespace tightloop {

namespace {

constexpr int kHistogramBins = 64;             // as wandb.Histogram has them
constexpr const char* kWandbFolder = "wandb";  // where its package, too, keeps what it writes

/// The lowest held-out loss in metrics.jsonl; infinity where there is none.
double lowest_loss(const fs::path& folder) {
  const auto bests = summary_of(folder).bests;
  const auto found = bests.find("eval/loss");
  return found == bests.end() ? INFINITY : found->second.second;
}

std::string without_newline(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace

std::string wandb_id(const fs::path& folder, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path file = folder / kWandbFolder / "run_id";
  if (is_file(file)) return without_newline(read_file(file));
  const auto seed = fmt::format("{} {} {}", folder.string(), unix_time(), ::getpid());
  const std::string id = hex64(hash64(seed)).substr(0, 12);
  make_folder(file.parent_path());
  write_file_whole(file, id + "\n");
  return id;
}

WandbSink::WandbSink(const WandbConfig& config, const fs::path& folder, const nlohmann::json& settings,
                     const Limits& limits)
    : limits_(limits),
      folder_(folder),
      messages_(folder / kWandbFolder / "messages.txt"),
      best_(lowest_loss(folder)) {
  make_folder(messages_.parent_path());
  const std::string id = wandb_id(folder, config.id);
  helper_ = std::make_unique<HelperProcess>(std::vector<std::string>{config.python, "-c", kWandbScript},
                                            messages_, limits.waiting_bytes);
  nlohmann::json start{{"mode", name_of(config.mode)},
                       {"dir", folder.string()},
                       {"id", id},
                       {"project", config.project},
                       {"name", config.name.empty() ? folder.filename().string() : config.name},
                       {"tags", config.tags},
                       {"config", settings}};
  if (!config.entity.empty()) start["entity"] = config.entity;
  send({{"start", std::move(start)}});
  const auto until = std::chrono::steady_clock::now() + limits.beginning;
  for (check(); !found_ && std::chrono::steady_clock::now() < until; check())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void WandbSink::send(nlohmann::json message) {
  spell_non_finite(message);
  helper_->send(message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void WandbSink::check() {
  const auto status = helper_->status();  // first: what it says before its end is read below
  for (const std::string& line : helper_->answers()) {
    const auto answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) continue;
    if (answer.contains("error")) throw Error(ExitCode::kFailure, answer.at("error").get<std::string>());
    if (answer.contains("url")) log::info("Weights & Biases: {}", answer.at("url").get<std::string>());
    if (answer.contains("found")) found_ = true;
    if (answer.contains("finished")) finished_ = true;
  }
  if (status && !finished_)
    throw Error(ExitCode::kFailure,
                fmt::format("the process that talks to Weights & Biases has ended ({}). What it said is in "
                            "'{}'.",
                            *status > 128 ? fmt::format("signal {}", *status - 128)
                                          : fmt::format("exit status {}", *status),
                            messages_.string()));
}

void WandbSink::write(const MetricsLine& line) {
  if (line.running()) return;
  check();
  step_ = line.values.value("global_step", int64_t{0});
  const ChartValues values = chart_values(line.values);
  nlohmann::json message{{"step", step_}, {"time", line.values.value("time", unix_time())}};
  for (const auto& [name, number] : values.numbers) {
    message["numbers"][name] = number;
    if (name == "eval/loss") best_ = std::min(best_, number);
  }
  for (const auto& [name, list] : values.lists) {
    const Histogram histogram = histogram_of(list, kHistogramBins);
    message["histograms"][name] = {{"edges", histogram.edges}, {"counts", histogram.counts}};
  }
  send(std::move(message));
}

void WandbSink::sample(const nlohmann::json& sample) {
  check();
  send({{"step", sample.value("global_step", step_)}, {"sample", sample}});
}

void WandbSink::flush() {
  check();
  helper_->push();
}

void WandbSink::rewind(int64_t) { best_ = lowest_loss(folder_); }

void WandbSink::finish(bool failed) {
  check();
  nlohmann::json summary{{"last_step", step_}};
  if (std::isfinite(best_)) summary["best_eval_loss"] = best_;
  if (helper_->dropped() > 0) summary["dropped_lines"] = helper_->dropped();
  spell_non_finite(summary);
  const nlohmann::json last{{"finish", {{"failed", failed}, {"summary", std::move(summary)}}}};
  log::info("Waiting for Weights & Biases, {} s at most.",
            std::chrono::ceil<std::chrono::seconds>(limits_.patience).count());
  const bool ended = helper_->finish(limits_.patience, last.dump());
  if (helper_->dropped() > 0)
    log::warn("Weights & Biases did not get {} lines: its process was too slow. metrics.jsonl has all.",
              helper_->dropped());
  check();
  if (!ended)
    log::warn("Weights & Biases is still at its uploads; process {} goes on with them by itself.",
              helper_->pid());
}

}  // namespace tightloop
