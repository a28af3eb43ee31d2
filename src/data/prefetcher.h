#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tightloop {

/// How full a queue was found: the sum over all times that somebody took from it.
struct QueueDepth {
  int64_t ready = 0, taken = 0;
};

/// Threads that fill a ring of slots ahead of one consumer. Item k is always in slot k % slots, whoever fills
/// it, so the order never depends on the threads. With 0 threads an item is made when it is asked for.
class Prefetcher {
 public:
  /// fill(item, slot) is called from many threads, never twice at once for a slot. Items are first, first +
  /// 1, ..., last - 1 (last < 0: without end).
  Prefetcher(int threads, int slots, int64_t first, int64_t last,
             std::function<void(int64_t item, int slot)> fill);
  /// Stops at once, whatever is under way is finished.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The slot with the next item; -1 after the last. The slot handed out before is free again.
  /// An error thrown by fill() is thrown here, in the place of the item it belongs to, and again if asked
  /// again.
  int next();

  /// How long the consumer has waited in next(), and how long the threads have waited for room, in all.
  double wait_seconds() const { return static_cast<double>(consumer_wait_.load()) * 1e-9; }
  double idle_seconds() const { return static_cast<double>(producer_wait_.load()) * 1e-9; }
  /// How many items were ready when next() was called, over all calls. Nothing is ever ready without threads.
  const QueueDepth& depth() const { return depth_; }

 private:
  struct Slot {
    int64_t ready = -1;  // the item that is here
    std::exception_ptr failure;
  };

  void work();
  bool exhausted(int64_t item) const { return last_ >= 0 && item >= last_; }
  int slot_of(int64_t item) const { return static_cast<int>(item % static_cast<int64_t>(slots_.size())); }

  const std::function<void(int64_t, int)> fill_;
  const int64_t last_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  int64_t claimed_, given_;  // the next item to be filled, and to be handed out
  bool holding_ = false;     // the consumer has a slot
  bool stopping_ = false;
  QueueDepth depth_;                                          // of the consumer's thread
  std::atomic<int64_t> consumer_wait_{0}, producer_wait_{0};  // nanoseconds
  std::vector<std::thread> threads_;
};

}  // namespace tightloop
