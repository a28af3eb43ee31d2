#pragma once

#include <functional>
#include <thread>

#include "core/threads.h"

namespace tightloop {

/// A thread that does what it is given, one thing after the other, in that order. What it is given must not
/// throw.
class Worker {
 public:
  Worker();
  /// Waits until all is done.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::function<void()> job);
  /// Until all that was added is done.
  void wait();
  bool idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable done_;
  int64_t open_ = 0;  // jobs not yet done
  BoundedQueue<std::function<void()>> jobs_{1024};
  std::thread thread_;
};

}  // namespace tightloop
