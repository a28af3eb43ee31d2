#include "dist/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

namespace tightloop {

namespace {

// Last words, in place of a number.
constexpr const char* kHeard = "heard";  // of a fault
constexpr const char* kDone = "done";
constexpr const char* kFault = "fault";
constexpr std::chrono::milliseconds kHurry{10};
constexpr std::chrono::seconds kFinish{10}, kDecide{2}, kHear{3};
constexpr std::chrono::seconds kStopped{1};  // between two questions: this process itself did not run
constexpr int kSuspicious = 4;               // beats missed, where a call has failed

std::string alive_key(int rank) { return fmt::format("alive/{}", rank); }
std::string host_key(int rank) { return fmt::format("host/{}", rank); }
std::string pace_key(int rank) { return fmt::format("pace/{}", rank); }

std::vector<std::string> keys_of(int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(alive_key(rank));
  for (int rank = 0; rank < world; ++rank) keys.push_back(pace_key(rank));
  keys.push_back(kFault);
  return keys;
}

std::vector<std::string> read(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::string> texts;
  for (const auto& bytes : store.multiGet(keys)) texts.emplace_back(bytes.begin(), bytes.end());
  return texts;
}

bool ended(const std::string& sign) { return sign == kHeard || sign == kDone; }

}  // namespace

std::string HeartbeatPeers::name(int which) const {
  return fmt::format("rank {} of {} (host {})", which, world(), hosts[static_cast<size_t>(which)]);
}

int64_t Heartbeat::introduce(c10d::Store& store, int rank, const std::string& host) {
  store.set(host_key(rank), host);
  store.set(pace_key(rank), "0");
  decide(store, {});  // from here on there is one to read, if an empty one
  return store.add(alive_key(rank), 1);
}

bool Heartbeat::wait_for(c10d::Store& store, int rank, std::chrono::milliseconds limit) {
  try {
    store.wait({alive_key(rank)}, limit);
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  }
}

std::vector<std::string> Heartbeat::hosts(c10d::Store& store, int world) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(host_key(rank));
  return read(store, keys);
}

std::optional<Fault> Heartbeat::decide(c10d::Store& store, const std::optional<Fault>& proposed) {
  return Fault::from_text(store.compareSet(kFault, "", proposed ? proposed->text() : ""));
}

Heartbeat::Heartbeat(Store store, HeartbeatPeers peers, const HeartbeatTiming& timing)
    : store_(std::move(store)),
      peers_(std::move(peers)),
      timing_(timing),
      keys_(keys_of(peers_.world())),
      signs_(size()),
      missed_(size()),
      paces_(size()),
      thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() { stop(); }

void Heartbeat::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    try {
      round();
    } catch (const std::exception&) {
      lock.lock();
      note(silent(peers_.holder));
      break;
    }
    lock.lock();
    ++rounds_;
    last_round_ = Clock::now();
    changed_.notify_all();
    const bool asked = proposed_ || done_;
    changed_.wait_for(lock, hurry_ ? kHurry : timing_.beat,
                      [&] { return stopping_ || (!asked && (proposed_ || done_)); });
  }
  stopped_ = true;
  changed_.notify_all();
}

void Heartbeat::round() {
  std::optional<Fault> proposed;
  std::string word, pace;
  {
    std::lock_guard lock(mutex_);
    if (!fault_) proposed = proposed_;
    word = done_ ? kDone : fault_ ? kHeard : "";
    pace = std::exchange(pace_, "");
  }
  const std::string& own = keys_[static_cast<size_t>(peers_.rank)];
  if (word.empty()) {
    store_->add(own, 1);
  } else {
    store_->set(own, word);
  }
  if (!pace.empty()) store_->set(pace_key(peers_.rank), pace);
  auto texts = read(*store_, keys_);
  auto fault = Fault::from_text(texts.back());
  texts.pop_back();
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < size(); ++i) paces_[i] = std::strtod(texts[size() + i].c_str(), nullptr);
    texts.resize(size());
    const auto found = judge(texts);
    if (!proposed && !fault_) proposed = found;
  }
  if (!fault && proposed) fault = decide(*store_, proposed);
  std::lock_guard lock(mutex_);
  note(fault);
}

std::optional<Fault> Heartbeat::judge(const std::vector<std::string>& signs) {
  // Rounds in a hurry come faster than the others' beats.
  const bool counts = Clock::now() - counted_ >= timing_.beat;
  if (counts) counted_ = Clock::now(), ++beats_;
  std::optional<Fault> found;
  for (int rank = 0; rank < peers_.world(); ++rank) {
    if (rank == peers_.rank) continue;
    const auto i = static_cast<size_t>(rank);
    // Beats, not seconds: while the store itself is slow nobody's number moves.
    if (signs[i] != signs_[i] || ended(signs[i])) {
      missed_[i] = 0;
    } else if (counts) {
      ++missed_[i];
    }
    if (!found && missed_[i] >= timing_.missed) found = silent(rank);
  }
  signs_ = signs;
  return found;
}

Fault Heartbeat::silent(int rank) const {
  const std::string who = rank == Fault::kAll ? "the launcher" : peers_.name(rank);
  const char* what = rank == peers_.holder ? ", which serves the processes' store," : "";
  return {rank, ExitCode::kFailure,
          fmt::format("{}{} does not answer any more: it was killed or stopped, or its machine is gone. All "
                      "processes end. Start them again; --resume goes on from the last checkpoint.",
                      who, what)};
}

Fault Heartbeat::fault_of(int rank, ExitCode code, const std::string& said) const {
  return {rank, code, fmt::format("{}: {}", peers_.name(rank), said)};
}

void Heartbeat::note(const std::optional<Fault>& fault) {
  if (fault_ || !fault) return;
  fault_ = fault, hurry_ = true;  // so that the others soon see that it was heard
  changed_.notify_all();
}

bool Heartbeat::hangs() const {
  return !stopped_ && Clock::now() - last_round_ > timing_.missed * timing_.beat;
}

// Jobs are suspended as a whole (scontrol suspend), and machines pause: in that time the store did not fail
// to answer. The others do not count it either, for they count beats.
void Heartbeat::leave_out_stop() {
  const auto now = Clock::now();
  if (now - asked_ > kStopped) last_round_ = std::min(now, last_round_ + (now - asked_));
  asked_ = now;
}

std::optional<Fault> Heartbeat::fault() {
  std::lock_guard lock(mutex_);
  leave_out_stop();
  if (hangs()) note(silent(peers_.holder));
  return fault_;
}

std::optional<Fault> Heartbeat::find_fault() {
  std::unique_lock lock(mutex_);
  const int64_t start = beats_;
  changed_.wait_for(lock, 3 * kSuspicious * timing_.beat,
                    [&] { return fault_ || stopped_ || beats_ > start + kSuspicious; });
  if (fault_) return fault_;
  std::optional<Fault> suspect;
  for (int rank = 0; rank < peers_.world() && !suspect; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (missed_[i] >= kSuspicious) suspect = silent(rank);
    if (signs_[i] == kDone) suspect = fault_of(rank, ExitCode::kFailure, "has ended already.");
  }
  lock.unlock();
  if (!suspect) return {};
  return fail(*suspect);
}

Fault Heartbeat::fail(const Fault& proposed) {
  std::unique_lock lock(mutex_);
  if (!proposed_) proposed_ = proposed;
  hurry_ = true;
  changed_.notify_all();
  if (!hangs()) changed_.wait_for(lock, kDecide, [&] { return stopped_ || fault_; });
  if (!fault_) fault_ = proposed;  // nobody is there to hear of it
  return *fault_;
}

void Heartbeat::finish() {
  std::unique_lock lock(mutex_);
  done_ = hurry_ = true;
  changed_.notify_all();
  const int64_t start = rounds_;
  const auto all_done = [&] {
    if (rounds_ <= start + 1) return false;  // the one under way may not have seen it yet
    for (int rank = 0; rank < peers_.world(); ++rank)
      if (rank != peers_.rank && signs_[static_cast<size_t>(rank)] != kDone) return false;
    return true;
  };
  changed_.wait_for(lock, kFinish, [&] { return stopped_ || fault_ || all_done(); });
}

void Heartbeat::wait_until_heard() {
  std::unique_lock lock(mutex_);
  if (peers_.holder != peers_.rank || !fault_) return;
  const auto all_heard = [&] {
    for (int rank = 0; rank < peers_.world(); ++rank) {
      const auto i = static_cast<size_t>(rank);
      // Whose fault it is knows it, or is dead.
      if (rank != peers_.rank && rank != fault_->rank && !ended(signs_[i]) && missed_[i] < kSuspicious)
        return false;
    }
    return true;
  };
  changed_.wait_for(lock, kHear, [&] { return stopped_ || all_heard(); });
}

bool Heartbeat::stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    const auto limit = std::chrono::milliseconds(hangs() ? 10 : 1000);
    if (!changed_.wait_for(lock, limit, [&] { return stopped_; })) return false;
  }
  if (thread_.joinable()) thread_.join();
  return true;
}

void Heartbeat::tell_pace(double seconds) {
  std::lock_guard lock(mutex_);
  pace_ = fmt::format("{:.6g}", seconds);
}

std::vector<double> Heartbeat::paces() {
  std::lock_guard lock(mutex_);
  return paces_;
}

}  // namespace tightloop
