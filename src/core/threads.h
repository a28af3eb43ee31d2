#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace tightloop {

/// Cores this process may use (the affinity mask counts, not the machine).
int available_cores();

/// Calls body(begin, end, worker) over chunks of [0, count) from `threads` threads (the caller is one of
/// them) and returns when all are done. Chunks are handed out in order, `grain` indices at a time; the first
/// exception thrown is rethrown here, after the other workers have stopped. threads <= 0 means
/// available_cores().
void parallel_for(size_t count, int threads, size_t grain,
                  const std::function<void(size_t begin, size_t end, int worker)>& body);

/// A bounded queue for any number of producers and consumers. close() wakes everybody: pushes are then
/// refused, pops drain what is left and return nothing after that.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  /// Waits for room. False when the queue was closed.
  bool push(T item) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_) return false;
    items_.push_back(std::move(item));
    some_.notify_one();
    return true;
  }

  /// Waits for an item. Nothing when the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    some_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    room_.notify_one();
    return item;
  }

  /// Waits for something to pop, or the end. False when neither has come in that time.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return some_.wait_for(lock, time, [&] { return closed_ || !items_.empty(); });
  }

  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_all();
    some_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_, some_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace tightloop
