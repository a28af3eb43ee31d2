#include "data/prefetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tightloop {

namespace {

class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<int64_t>& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { sum_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::atomic<int64_t>& sum_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Prefetcher::Prefetcher(int threads, int slots, int64_t first, int64_t last,
                       std::function<void(int64_t, int)> fill)
    : fill_(std::move(fill)), last_(last), slots_(std::max(2, slots)), claimed_(first), given_(first) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // One slot is in the consumer's hands, so an item may be made only when the one before it in its slot is
    // done with.
    const auto has_room = [&] {
      const int64_t oldest_in_use = given_ - (holding_ ? 1 : 0);
      return stopping_ || exhausted(claimed_) ||
             claimed_ < oldest_in_use + static_cast<int64_t>(slots_.size());
    };
    if (!has_room()) {
      Stopwatch watch(producer_wait_);
      room_.wait(lock, has_room);
    }
    if (stopping_ || exhausted(claimed_)) return;
    const int64_t item = claimed_++;
    Slot& slot = slots_[slot_of(item)];
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill_(item, slot_of(item));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.failure = failure;
    slot.ready = item;
    if (item == given_) ready_.notify_one();
  }
}

int Prefetcher::next() {
  if (exhausted(given_)) return -1;
  const int slot = slot_of(given_);
  if (threads_.empty()) {
    Stopwatch watch(consumer_wait_);
    fill_(given_, slot);
    ++given_;
    return slot;
  }
  std::unique_lock lock(mutex_);
  if (std::exchange(holding_, false)) room_.notify_one();
  const auto is_ready = [&] { return slots_[slot].ready == given_; };
  ++depth_.taken;
  for (int64_t item = given_; item < claimed_; ++item) depth_.ready += slots_[slot_of(item)].ready == item;
  if (!is_ready()) {
    Stopwatch watch(consumer_wait_);
    ready_.wait(lock, is_ready);
  }
  if (slots_[slot].failure) std::rethrow_exception(slots_[slot].failure);
  ++given_;
  holding_ = true;
  return slot;
}

}  // namespace tightloop
