#include "dist/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tightloop {

namespace {

constexpr const char* kError = "error";  // last words, in place of a number
constexpr const char* kDone = "done";
constexpr std::chrono::milliseconds kHurry{10};
constexpr std::chrono::seconds kFinish{10};

std::vector<std::string> keys_of(int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(Heartbeat::key(rank));
  return keys;
}

}  // namespace

std::string Heartbeat::key(int rank) { return fmt::format("alive/{}", rank); }

Heartbeat::Heartbeat(Store store, int rank, int world, const HeartbeatTiming& timing, std::string holder,
                     std::function<void()> lost)
    : store_(std::move(store)),
      rank_(rank),
      world_(world),
      timing_(timing),
      holder_(std::move(holder)),
      lost_(std::move(lost)),
      keys_(keys_of(world)),
      signs_(static_cast<size_t>(world)),
      missed_(static_cast<size_t>(world)),
      thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    try {
      round();
    } catch (const std::exception&) {
      note(fmt::format("{} is gone", holder_));
      lock.lock();
      break;
    }
    lock.lock();
    ++rounds_;
    last_round_ = Clock::now();
    changed_.notify_all();
    const std::string word = word_;
    changed_.wait_for(lock, hurry_ ? kHurry : timing_.beat, [&] { return stopping_ || word_ != word; });
  }
  stopped_ = true;
  changed_.notify_all();
}

void Heartbeat::round() {
  std::string word;
  {
    std::lock_guard lock(mutex_);
    word = word_;
  }
  if (word.empty()) {
    store_->add(keys_[static_cast<size_t>(rank_)], 1);
  } else {
    store_->set(keys_[static_cast<size_t>(rank_)], word);
  }
  const auto read = store_->multiGet(keys_);
  std::string loss;
  {
    std::lock_guard lock(mutex_);
    // Rounds in a hurry come faster than the others' beats.
    const bool counts = Clock::now() - counted_ >= timing_.beat;
    if (counts) counted_ = Clock::now();
    for (size_t i = 0; i < read.size(); ++i) {
      if (static_cast<int>(i) == rank_) continue;
      const std::string sign(read[i].begin(), read[i].end());
      // Rounds, not seconds: while the store itself is slow nobody's number moves.
      if (sign != signs_[i] || sign == kDone) {
        missed_[i] = 0;
      } else if (counts) {
        ++missed_[i];
      }
      signs_[i] = sign;
      if (!loss.empty()) continue;
      if (sign == kError) loss = fmt::format("rank {} of {} has ended with an error", i, world_);
      if (missed_[i] >= timing_.missed)
        loss = fmt::format("rank {} of {} does not answer any more: it was killed, or its machine is gone", i,
                           world_);
    }
  }
  if (!loss.empty()) note(loss);
}

void Heartbeat::note(const std::string& loss) {
  {
    std::lock_guard lock(mutex_);
    if (!loss_.empty()) return;
    loss_ = loss;
    changed_.notify_all();
  }
  lost_();
}

std::string Heartbeat::loss() {
  std::lock_guard lock(mutex_);
  if (loss_.empty() && !stopped_ && Clock::now() - last_round_ > (timing_.missed + 2) * timing_.beat)
    loss_ = fmt::format("{} does not answer any more", holder_);
  return loss_;
}

std::string Heartbeat::find_loss() {
  constexpr int kSuspicious = 4;  // beats
  std::unique_lock lock(mutex_);
  const int64_t start = rounds_;
  changed_.wait_for(lock, 3 * kSuspicious * timing_.beat,
                    [&] { return !loss_.empty() || stopped_ || rounds_ > start + kSuspicious; });
  if (!loss_.empty()) return loss_;
  for (int rank = 0; rank < world_; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (missed_[i] >= kSuspicious)
      return fmt::format("rank {} of {} does not answer any more: it was killed, or its machine is gone",
                         rank, world_);
    if (signs_[i] == kDone) return fmt::format("rank {} of {} has ended already", rank, world_);
  }
  return {};
}

void Heartbeat::say(const std::string& word) {
  std::unique_lock lock(mutex_);
  word_ = word, hurry_ = true;
  changed_.notify_all();
  const int64_t start = rounds_;
  // Two rounds: the one under way may not have seen the word yet.
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return stopped_ || rounds_ > start + 1; });
}

void Heartbeat::fail() { say(kError); }

void Heartbeat::finish() {
  say(kDone);
  std::unique_lock lock(mutex_);
  const auto done = [&] {
    for (int rank = 0; rank < world_; ++rank)
      if (rank != rank_ && signs_[static_cast<size_t>(rank)] != kDone) return false;
    return true;
  };
  changed_.wait_for(lock, kFinish, [&] { return stopped_ || !loss_.empty() || done(); });
}

bool Heartbeat::stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, std::chrono::seconds(1), [&] { return stopped_; })) {
      if (loss_.empty()) loss_ = holder_ + " does not answer any more";  // nobody is to be told any more
      return false;
    }
  }
  if (thread_.joinable()) thread_.join();
  return true;
}

}  // namespace tightloop
