#include "train/run/run_events.h"

#include <chrono>
#include <cmath>
#include <fstream>

#include "core/log.h"

namespace tightloop {

double unix_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000;
}

void RunEvents::add(int64_t step, RunEvent event, const std::string& text, const nlohmann::json& more) {
  nlohmann::json line{
      {"time", unix_time()}, {"global_step", step}, {"event", name_of(event)}, {"text", text}};
  line.update(more);
  const std::lock_guard lock(mutex_);
  if (!out_.is_open()) out_.open(file_, std::ios::app);
  out_.clear();
  out_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  if (!out_ && !failed_)
    log::warn("'{}' cannot be written (is the disk full?); training goes on.", file_.string());
  failed_ = !out_;
}

}  // namespace tightloop
