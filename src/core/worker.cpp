#include "core/worker.h"

#include <utility>

namespace tightloop {

Worker::Worker() : thread_([this] { run(); }) {}

Worker::~Worker() {
  jobs_.close();
  thread_.join();
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  jobs_.push(std::move(job));
}

void Worker::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return open_ == 0; });
}

bool Worker::idle() {
  const std::lock_guard lock(mutex_);
  return open_ == 0;
}

void Worker::run() {
  while (auto job = jobs_.pop()) {
    (*job)();
    *job = nullptr;  // what it held goes before anybody hears that it is done
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) done_.notify_all();
  }
}

}  // namespace tightloop
