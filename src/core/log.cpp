#include "core/log.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "core/terminal/terminal.h"

namespace tightloop::log {

namespace {

class TerminalLog : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text(message.payload.data(), message.payload.size());
    if (message.level >= spdlog::level::err)
      return terminal::print(terminal::styled("error: ", "1;31") + text);
    if (message.level == spdlog::level::warn)
      return terminal::print(terminal::styled("warning: ", "33") + text);
    terminal::print(text);
  }
  void flush_() override {}
};

struct Sinks {
  std::shared_ptr<TerminalLog> terminal = std::make_shared<TerminalLog>();
  std::shared_ptr<spdlog::details::thread_pool> pool =
      std::make_shared<spdlog::details::thread_pool>(8192, 1);
  std::shared_ptr<spdlog::async_logger> logger;
  Sinks() { start({terminal}); }
  void start(std::vector<spdlog::sink_ptr> sinks) {
    logger = std::make_shared<spdlog::async_logger>("tightloop", sinks.begin(), sinks.end(), pool);
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::debug);  // the last lines of a process that is killed are those to read
  }
};

std::mutex mutex;
std::unique_ptr<Sinks> sinks;

Sinks& get() {
  if (!sinks) sinks = std::make_unique<Sinks>();
  return *sinks;
}

spdlog::level::level_enum to_spdlog(Level level) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                         spdlog::level::warn, spdlog::level::err};
  return levels[static_cast<int>(level)];
}

}  // namespace

void write(Level level, std::string message) {
  std::lock_guard lock(mutex);
  get().logger->log(to_spdlog(level), printable(message));
}

void to_file(const std::filesystem::path& path) {
  std::shared_ptr<spdlog::sinks::basic_file_sink_mt> file;
  try {
    file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
  } catch (const spdlog::spdlog_ex&) {
    throw checkpoint_error("cannot write '{}': {}.", path.string(), std::strerror(errno));
  }
  file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  std::lock_guard lock(mutex);
  get().start({get().terminal, file});
}

void set_terminal_level(Level level) {
  std::lock_guard lock(mutex);
  get().terminal->set_level(to_spdlog(level));
}

bool terminal_shows(Level level) {
  std::lock_guard lock(mutex);
  return get().terminal->should_log(to_spdlog(level));
}

void shut_down() {
  std::lock_guard lock(mutex);
  if (!sinks) return;
  sinks->logger->flush();
  sinks.reset();  // the pool's destructor drains the queue and joins
}

}  // namespace tightloop::log
