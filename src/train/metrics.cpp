#include "train/metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <variant>

#include "core/error.h"
#include "core/files.h"
#include "core/log.h"
#include "core/terminal.h"
#include "core/threads.h"

namespace tightloop {

namespace {

void drop_lines_after(const fs::path& file, int64_t step) {
  if (!fs::exists(file)) return;
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || parsed.value("global_step", int64_t{0}) > step) continue;
    kept += line + "\n";
  }
  write_file_whole(file, kept);
}

nlohmann::json line_of(const IntervalReport& report) {
  nlohmann::json line{{"global_step", report.step},
                      {"training/loss", report.loss},
                      {"training/lr", report.lr},
                      {"training/grad_norm", report.grad_norm},
                      {"perf/step_time", report.step_seconds},
                      {"perf/tokens_per_second", report.tokens_per_second},
                      {"perf/data_wait", report.data_wait_share}};
  line["training/epoch"] = report.epoch;
  line["syncs"] = report.syncs;
  for (const auto& [source, loss] : report.source_losses) line["training/loss/" + source] = loss;
  for (const auto& [source, share] : report.source_accuracies) line["training/accuracy/" + source] = share;
  if (report.accuracy) line["training/accuracy"] = *report.accuracy;
  if (report.loss_scale) line["training/loss_scale"] = *report.loss_scale;
  if (report.skipped_steps > 0) line["training/skipped_steps"] = report.skipped_steps;
  if (report.balance_loss) line["training/balance_loss"] = *report.balance_loss;
  if (!report.expert_loads.empty()) line["training/expert_loads"] = report.expert_loads;
  if (report.empty_batches > 0) line["training/empty_batches"] = report.empty_batches;
  return line;
}

}  // namespace

class Metrics::Worker {
 public:
  using Item = std::variant<IntervalReport, nlohmann::json>;

  explicit Worker(const fs::path& file) : file_(file, std::ios::app), thread_([this] { run(); }) {
    if (!file_) throw checkpoint_error("cannot write '{}'.", file.string());
  }
  ~Worker() { stop(); }

  void push(Item item) { queue_.push(std::move(item)); }
  void stop() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
    terminal::clear_live();
  }
  const std::vector<double>& losses() const { return losses_; }

 private:
  void run() {
    while (auto item = queue_.pop()) {
      if (const auto* report = std::get_if<IntervalReport>(&*item)) {
        write(line_of(*report));
        losses_.push_back(report->loss);
        show(*report);
      } else {
        write(std::get<nlohmann::json>(*item));
      }
    }
    file_.flush();
  }

  void write(const nlohmann::json& line) { file_ << line.dump() << std::endl; }

  // A live line on a terminal; elsewhere a plain line at growing intervals, so that logs of long runs stay
  // short.
  void show(const IntervalReport& report) {
    const double left = report.step_seconds * static_cast<double>(report.total_steps - report.step);
    const std::string numbers =
        fmt::format("step {:>{}}/{}  loss {:.4f}  lr {:.2e}  {} tok/s  {} left", report.step,
                    fmt::formatted_size("{}", report.total_steps), report.total_steps, report.loss, report.lr,
                    human_count(report.tokens_per_second), human_seconds(left));
    if (terminal::is_live())
      return terminal::set_live(numbers + "  " + terminal::styled(sparkline(losses_, 24), "36"));
    const auto now = std::chrono::steady_clock::now();
    if (report.step != report.total_steps && now - last_line_ < std::chrono::seconds(2)) return;
    last_line_ = now;
    log::info("{}", numbers);
  }

  std::ofstream file_;
  std::vector<double> losses_;
  std::chrono::steady_clock::time_point last_line_{};
  BoundedQueue<Item> queue_{4096};
  std::thread thread_;
};

Metrics::Metrics(const fs::path& file, int64_t resumed_step) {
  if (resumed_step > 0) drop_lines_after(file, resumed_step);
  worker_ = std::make_unique<Worker>(file);
}
Metrics::~Metrics() = default;

void Metrics::interval(const IntervalReport& report) { worker_->push(report); }
void Metrics::line(const nlohmann::json& line) { worker_->push(line); }
std::vector<double> Metrics::finish() {
  worker_->stop();
  return worker_->losses();
}

}  // namespace tightloop
