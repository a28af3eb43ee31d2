#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "dist/process_group.h"

namespace tightloop {

/// Texts that processes leave for each other in the store. The process that serves it may be stopped, and
/// then the store does not answer for minutes: a thread of this object's own asks it, and whoever waits for
/// an answer looks meanwhile whether all are there.
///
/// Calls may come from any thread.
class Board {
 public:
  /// `store` is a connection of this object's own; `check` throws where a peer is dead.
  Board(Store store, std::function<void()> check);
  /// A thread that hangs in the store is left alone; it ends with the process.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void post(const std::string& name, const std::string& text);
  std::optional<std::string> find(const std::string& name);
  void remove(const std::string& name);

 private:
  struct Jobs;
  void ask(std::function<void(c10d::Store&)> question);

  const std::function<void()> check_;
  const std::shared_ptr<Jobs> jobs_;  // the thread's too, which may outlive this object
  std::thread thread_;
};

}  // namespace tightloop
